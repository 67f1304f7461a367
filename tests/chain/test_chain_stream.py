"""The stream job on a real broker and a real cluster, driven by its verbs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from infra.paths import ROOT
from infra.stack import Stack
from schemas.window import DeadLetter, Window, decode_window

pytestmark = pytest.mark.slow

WINDOW = 10  # smaller than the plan's, so that events are pushed out
MAX_RECORD = 8 * 1024 * 1024
AT = 1_262_304_000_000  # 2010: event times may be historic
SECONDS_TO_SETTLE = 180


class Bench:
    """A broker, a cluster and the verbs, in a state folder of their own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.stack = Stack(state)
        self.kafka = self.stack.up(("kafka", "flink"))["BEFOREHAND_KAFKA"]
        self.producer = KafkaProducer(bootstrap_servers=self.kafka, max_request_size=MAX_RECORD)

    def stream(self, *arguments: str) -> dict[str, Any]:
        """Run ``./beforehand stream …``; its JSON result."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")}
        environ["BEFOREHAND_STATE"] = str(self.state)
        command = [str(ROOT / "beforehand"), "stream", *arguments, "--json"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def deploy(self, *arguments: str) -> dict[str, Any]:
        return self.stream("deploy", "--set", f"model.window={WINDOW}", *arguments)

    def send(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            self.producer.send("events", key=event["user_id"].encode(), value=json.dumps(event).encode())
        self.producer.flush()

    def read(self, topic: str) -> list[Any]:
        """Every record of a topic up to now."""
        consumer = KafkaConsumer(bootstrap_servers=self.kafka, enable_auto_commit=False)
        try:
            partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            ends = consumer.end_offsets(partitions)
            records: list[Any] = []
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                for batch in consumer.poll(timeout_ms=500).values():
                    records += batch
            return records
        finally:
            consumer.close()

    def task_manager(self) -> int:
        """Its pid."""
        flink = next(one for one in self.stack.status() if one.name == "flink")
        return next(pid for pid in flink.pids if b"TaskManagerRunner" in Path(f"/proc/{pid}/cmdline").read_bytes())

    def windows(self) -> dict[str, Window]:
        """The newest of every user; a tombstone takes the user away."""
        newest = {record.key.decode(): record.value for record in self.read("windows")}
        return {user: decode_window(value) for user, value in newest.items() if value is not None}

    def dead_letters(self) -> list[DeadLetter]:
        return [msgspec.json.decode(record.value, type=DeadLetter) for record in self.read("dead-letters")]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("stream"))
    try:
        yield made
    finally:
        made.producer.close()
        made.stack.down()


@pytest.fixture(scope="module")
def running(bench: Bench) -> Bench:
    """The job, on an events topic that takes records of 5 MB."""
    admin = KafkaAdminClient(bootstrap_servers=bench.kafka)
    settings = {"max.message.bytes": str(MAX_RECORD), "message.timestamp.type": "LogAppendTime"}
    admin.create_topics({"events": {"num_partitions": 4, "configs": settings}}, wait_for_metadata=True)
    admin.close()
    deployed = bench.deploy()
    assert deployed["state"] == "RUNNING"
    assert deployed["topics_made"] == ["windows", "dead-letters", "forgotten", "catalogue"]
    return bench


def event(user: str, number: int, at: int) -> dict[str, Any]:
    kinds = ("impression", "click", "cart", "purchase")
    made = {"event_id": f"{user}-{number}", "user_id": user, "item_id": f"i{number % 17}", "kind": kinds[number % 4]}
    return {**made, "at": at}


def bad_at(at: Any) -> bytes:
    return json.dumps({**event("bad", 0, 0), "at": at}).encode()


def settle(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_TO_SETTLE
    while not holds():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.5)


def test_each_bad_record_costs_one_dead_letter_and_the_good_one_after_it_is_applied(running: Bench) -> None:
    now = round(time.time() * 1000)
    poison: list[tuple[bytes | None, str]] = [
        (b'{"event_id":"e","user_id":"u', "not_json"),
        (b"[]", "not_an_object"),
        (b"null", "not_an_object"),
        (b"1e400", "not_an_object"),
        (b"", "not_json"),
        (None, "null_value"),
        (b'{"event_id":"\xff\xfe"}', "not_utf8"),
        (bad_at("yesterday"), "at"),
        (b'{"event_id":"e","user_id":"u","item_id":"i","kind":"click","at":1e400}', "at"),
        (b"x" * 5_000_000, "too_large"),
        (bad_at(AT // 1000), "at_in_seconds"),
        (bad_at(0), "at"),
        (bad_at(-AT), "at"),
        (bad_at(4_070_908_800_000), "future"),  # 2099
        (bad_at(now + 600_000), "future"),
        (json.dumps({**event("bad", 1, AT), "kind": "like"}).encode(), "kind"),
    ]
    expected = {}
    for number, (record, reason) in enumerate(poison):
        sent = running.producer.send("events", key=b"k", value=record, partition=0).get(30)
        expected[sent.offset] = (reason, (record or b"")[: 64 * 1024])
        good = json.dumps(event(f"good-{number}", 0, now + 60_000)).encode()  # a minute ahead is allowed
        running.producer.send("events", value=good, partition=0)
    running.producer.flush()
    settle(lambda: len(running.windows()) >= len(poison), "every good record is in a window")
    settle(lambda: len(running.dead_letters()) >= len(poison), "every bad record is a dead letter")
    letters = running.dead_letters()
    assert {one.offset: (one.reason, one.payload) for one in letters} == expected
    assert len(letters) == len(poison)
    assert {(one.topic, one.partition) for one in letters} == {("events", 0)}
    assert all(abs(one.arrived_at - now) < 600_000 for one in letters)
    settle(lambda: running.stream("status")["records"] == 2 * len(poison), "each record is parsed exactly once")
    status = running.stream("status")
    assert (status["state"], status["dead_letters"], status["num_restarts"]) == ("RUNNING", len(poison), 0)


def disordered(rng: random.Random, users: list[str], num_each: int) -> list[dict[str, Any]]:
    """Ties of three, 15 % out of order, a tenth delivered twice, some when they were pushed out already."""
    events = [event(user, number, AT + number // 3) for number in range(num_each) for user in users]
    for place in rng.sample(range(len(events)), len(events) * 15 // 100):
        other = rng.randrange(len(events))
        events[place], events[other] = events[other], events[place]
    return events + rng.sample(events, len(events) // 10)


def naive(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The window rule in its plainest form, for every user."""
    users: dict[str, dict[str, dict[str, Any]]] = {}
    for one in events:
        users.setdefault(one["user_id"], {}).setdefault(one["event_id"], one)
    windows = {}
    for user, mine in users.items():
        ordered = sorted(mine.values(), key=lambda one: (one["at"], one["event_id"]), reverse=True)
        windows[user] = [{key: one[key] for key in ("event_id", "item_id", "kind", "at")} for one in ordered[:WINDOW]]
    return windows


def settle_on(bench: Bench, expected: dict[str, Any]) -> None:
    def found() -> dict[str, Any]:
        windows = bench.windows()
        return {user: msgspec.to_builtins(windows[user].events) for user in expected if user in windows}

    settle(lambda: found() == expected, "the windows equal the reference")


def test_windows_are_those_of_the_naive_rule(running: Bench) -> None:
    users = [f"u{number}" for number in range(297)] + ["ü/:|{}", "😀", "長" * 200]
    events = disordered(random.Random(11), users, 25)
    running.send(events)
    settle_on(running, naive(events))
    assert all(window.arrived_at > AT for window in running.windows().values())


def test_a_killed_task_manager_loses_nothing(running: Bench) -> None:
    events = disordered(random.Random(13), [f"k{number}" for number in range(100)], 25)
    half = len(events) // 2
    running.send(events[:half])
    os.kill(running.task_manager(), signal.SIGKILL)
    running.send(events[half:])
    running.stack.up(("flink",))
    settle_on(running, naive(events))
    settle(lambda: (running.stream("status")["num_restarts"] or 0) > 0, "the job did restart")


def test_a_user_with_a_flood_of_events_comes_out_a_few_times_only(running: Bench) -> None:
    running.send([event("flood", number, AT + number) for number in range(5_000)])
    settle(lambda: running.windows()["flood"].events[0].event_id == "flood-4999", "the newest event is in the window")
    assert len([record for record in running.read("windows") if record.key == b"flood"]) < 500


def test_a_second_deploy_changes_nothing(running: Bench) -> None:
    job_id = running.stream("status")["job_id"]
    assert running.deploy() == {"job_id": job_id, "state": "RUNNING", "changed": False}


def test_an_upgrade_keeps_every_window(running: Bench) -> None:
    stopped = running.stream("stop", "--savepoint")
    running.send([event("u5", 100, AT + 1_000)])  # while nothing runs
    deployed = running.deploy("--set", "model.window=8")
    assert deployed["resumed_from"] == stopped["state_path"]
    settle(lambda: running.windows()["u5"].events[0].event_id == "u5-100", "the event sent meanwhile is there")
    kept = ["u5-100", *(f"u5-{number}" for number in range(24, 17, -1))]
    assert [one.event_id for one in running.windows()["u5"].events] == kept
    settle(lambda: bool(running.stream("status")["records"]), "the counts are told")
    assert running.stream("status")["records"] == 1, "the topic was read from its start: the state was not used"


def test_too_many_bad_records_stop_the_job_on_purpose(running: Bench) -> None:
    settle(lambda: running.stream("status")["num_checkpoints"] > 0, "a checkpoint of this start")
    for _ in range(150):
        running.producer.send("events", value=b"broken", partition=1)
    running.producer.flush()
    settle(lambda: running.stream("status")["state"] == "FAILED", "the job stops")
    status = running.stream("status")
    assert "nearline.max_bad_share is 20 %" in status["cause"]
    again = running.deploy("--set", "nearline.max_bad_share=1")
    assert again["resumed_from"] == status["checkpoint"]
    settle(lambda: sum(one.payload == b"broken" for one in running.dead_letters()) >= 150, "all are dead letters")
    running.stream("stop")
    assert running.stream("status")["state"] == "CANCELED"
