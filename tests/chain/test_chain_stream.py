"""The stream job on a real broker and a real cluster, driven by its verbs."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient
from stream_bench import AT, MAX_RECORD, Bench, disordered, event, naive, settle_on
from waiting import kill, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("stream"))
    try:
        yield made
    finally:
        made.close()


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


def bad_at(at: Any) -> bytes:
    return json.dumps({**event("bad", 0, 0), "at": at}).encode()


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
    wait_for("every good record is in a window", lambda: len(running.windows()) >= len(poison))
    wait_for("every bad record is a dead letter", lambda: len(running.dead_letters()) >= len(poison))
    letters = running.dead_letters()
    assert {one.offset: (one.reason, one.payload) for one in letters} == expected
    assert len(letters) == len(poison)
    assert {(one.topic, one.partition) for one in letters} == {("events", 0)}
    assert all(abs(one.arrived_at - now) < 600_000 for one in letters)
    wait_for("each record is parsed exactly once", lambda: running.stream("status")["records"] == 2 * len(poison))
    status = running.stream("status")
    assert (status["state"], status["dead_letters"], status["num_restarts"]) == ("RUNNING", len(poison), 0)


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
    kill(running.pid("flink", "TaskManagerRunner"))
    running.send(events[half:])
    running.stack.up(("flink",))
    settle_on(running, naive(events))
    wait_for("the job did restart", lambda: (running.stream("status")["num_restarts"] or 0) > 0)


def test_a_user_with_a_flood_of_events_comes_out_a_few_times_only(running: Bench) -> None:
    running.send([event("flood", number, AT + number) for number in range(5_000)])
    wait_for("the newest event is in the window", lambda: running.windows()["flood"].events[0].event_id == "flood-4999")
    assert len([record for record in running.read("windows") if record.key == b"flood"]) < 500


def test_a_second_deploy_changes_nothing(running: Bench) -> None:
    job_id = running.stream("status")["job_id"]
    assert running.deploy() == {"job_id": job_id, "state": "RUNNING", "changed": False}


def test_an_upgrade_keeps_every_window(running: Bench) -> None:
    stopped = running.stream("stop", "--savepoint")
    running.send([event("u5", 100, AT + 1_000)])  # while nothing runs
    deployed = running.deploy("--set", "model.window=8")
    assert deployed["resumed_from"] == stopped["state_path"]
    wait_for("the event sent meanwhile is there", lambda: running.windows()["u5"].events[0].event_id == "u5-100")
    kept = ["u5-100", *(f"u5-{number}" for number in range(24, 17, -1))]
    assert [one.event_id for one in running.windows()["u5"].events] == kept
    assert running.counted() == 1, "the topic was read from its start: the state was not used"


def test_too_many_bad_records_stop_the_job_on_purpose(running: Bench) -> None:
    wait_for("a checkpoint of this start", lambda: (running.stream("status")["num_checkpoints"] or 0) > 0)
    for _ in range(150):
        running.producer.send("events", value=b"broken", partition=1)
    running.producer.flush()
    wait_for("the job stops", lambda: running.stream("status")["state"] == "FAILED")
    status = running.stream("status")
    assert "nearline.max_bad_share is 20 %" in status["cause"]
    again = running.deploy("--set", "nearline.max_bad_share=1")
    assert again["resumed_from"] == status["checkpoint"]
    wait_for("all are dead letters", lambda: sum(one.payload == b"broken" for one in running.dead_letters()) >= 150)
    running.stream("stop")
    assert running.stream("status")["state"] == "CANCELED"
