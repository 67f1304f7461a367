"""The worker on a real Kafka and a real Redis: killed, joined, restarted, promoted under, and cut off from both.

A thread stands in for the stream job: it folds events with the reference and writes windows.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from waiting import everything_in, nearline, wait_for

from infra.stack import Stack
from nearline.broker import GROUP
from nearline.release import load_release
from nearline.states import Record, StateMaker, sort_out
from nearline.topics import ensure_topics
from nearline.window import fold
from schemas.event import Event, decode_event, encode_event
from schemas.keys import state_key
from schemas.names import Kind
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import MANIFEST, Manifest, content_id, load_private_key, write_manifest
from schemas.state import IntentState, decode_state
from schemas.topics import DEAD_LETTERS_TOPIC, EVENTS_TOPIC, WINDOWS_TOPIC
from schemas.window import DeadLetter, Window, WindowEvent

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
AT = 1_700_000_000_000
USERS = 1_500
# A worker that writes its second batch, and is gone before it commits it.
VICTIM = """
import os, signal, sys
from nearline import broker, __main__
from schemas.cli import main, parser
from nearline.worker_verb import add_worker
commit, seen = broker.KafkaSource.commit, []
def killed(self):
    seen.append(1)
    if len(seen) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self)
broker.KafkaSource.commit = killed
top, verbs = parser("nearline", "")
add_worker(verbs)
main(top, ["worker"])
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("chain") / "state")
    stack.up(("redis", "kafka"))
    yield stack
    stack.down()


@pytest.fixture(scope="module")
def env(stack: Stack) -> dict[str, str]:
    """The environment of a verb: this stack, and a registry whose current release is the fixture."""
    state = stack.layout.state
    env = {
        **os.environ,
        **stack.environment(),
        "BEFOREHAND_STATE": str(state),
        "BEFOREHAND_REGISTRY": f"sqlite:///{state / 'registry.db'}",
        "BEFOREHAND_VERIFY_KEY": str(FIXTURES / "release.pub"),
    }
    promote(env, FIXTURES / "release")
    ensure_topics(env["BEFOREHAND_KAFKA"])
    assert ensure_topics(env["BEFOREHAND_KAFKA"]) == []
    return env


def promote(env: dict[str, str], folder: Path) -> str:
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    registry = Registry(env["BEFOREHAND_REGISTRY"])
    registry.publish(ReleaseRow(manifest.id, str(folder), "h", {}, Status.FUTURE, manifest.made_at), why="test")
    registry.promote(manifest.id, why="test")
    return manifest.id


def worker(env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return nearline(env, "worker", "--json", *words)


def stopped(process: subprocess.Popen[str]) -> tuple[dict, str]:
    """Stop a worker as an orchestrator does; its summary and what it said."""
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate()
    assert process.returncode == 0, said
    return json.loads(out), said


def window(n: int, newest_at: int) -> Window:
    events = [WindowEvent(f"{newest_at}-{k}", f"item-{(n + k) % 60:03d}", "click", newest_at - k) for k in range(6)]
    return Window(events, int(time.time() * 1000))


def put_windows(env: dict[str, str], windows: dict[str, Window | bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=env["BEFOREHAND_KAFKA"], linger_ms=20)
    for user, one in windows.items():
        value = one if isinstance(one, bytes) else msgspec.json.encode(one)
        producer.send(WINDOWS_TOPIC, value, user.encode())
    producer.flush()
    producer.close()


def states(env: dict[str, str], users: list[str]) -> dict[str, IntentState]:
    client = redis.Redis.from_url(env["BEFOREHAND_REDIS"])
    raws = client.mget([state_key(user) for user in users])
    return {user: decode_state(raw) for user, raw in zip(users, raws, strict=True) if raw}


def test_killed_between_write_and_commit_another_takes_over_and_nothing_is_lost(env: dict[str, str]) -> None:
    windows = {f"k{n}": window(n, AT + n) for n in range(USERS)}
    put_windows(env, {"broken": b"{", **windows})
    victim = subprocess.Popen([sys.executable, "-c", VICTIM], cwd=ROOT, env=env, stderr=subprocess.DEVNULL)
    assert victim.wait(60) == -signal.SIGKILL
    assert 0 < len(states(env, list(windows))) < USERS
    other = worker(env, "--once")
    out, said = other.communicate()
    assert other.returncode == 0, said
    assert json.loads(out)["records"] >= USERS - 512

    maker = StateMaker(load_release(FIXTURES / "release", FIXTURES / "release.pub"))
    records = [Record(0, n, user.encode(), msgspec.json.encode(one)) for n, (user, one) in enumerate(windows.items())]
    expected = {one.user_id: one for one, _ in maker.make(list(sort_out(records, "").windows.values()), 0).states}
    found = states(env, list(windows))
    assert set(found) == set(expected)
    for user, state in found.items():
        same = msgspec.structs.replace(state, made_at=0, rows=b"")
        assert same == msgspec.structs.replace(expected[user], rows=b"")
    letters = [
        msgspec.json.decode(one.value, type=DeadLetter)
        for one in everything_in(env["BEFOREHAND_KAFKA"], DEAD_LETTERS_TOPIC)
    ]
    assert {(letter.topic, letter.payload) for letter in letters} == {(WINDOWS_TOPIC, b"{")}


def test_a_promotion_encodes_everybody_again_and_a_stop_leaves_the_group(env: dict[str, str], tmp_path: Path) -> None:
    users = [f"p{n}" for n in range(200)]
    put_windows(env, {user: window(n, AT) for n, user in enumerate(users)})
    first, second = worker(env), worker(env)
    wait_for("all encoded", lambda: len(states(env, users)) == len(users))
    promoted = promote(env, next_release(tmp_path / "next"))
    wait_for("all encoded again", lambda: {one.release for one in states(env, users).values()} == {promoted})
    summaries = [stopped(first)[0], stopped(second)[0]]
    assert sum(summary["states"] for summary in summaries) >= 2 * len(users)
    assert members(env) == []  # one that left makes nobody wait for its session to time out
    put_windows(env, {"p0": window(0, AT + 9)})
    last = worker(env, "--once")
    assert last.wait(60) == 0
    last.communicate()
    assert states(env, ["p0"])["p0"].watermark == AT + 9


def members(env: dict[str, str]) -> list[Any]:
    """Of the workers' group, as the broker knows it."""
    admin = KafkaAdminClient(bootstrap_servers=env["BEFOREHAND_KAFKA"])
    try:
        return admin.describe_groups([GROUP])[GROUP]["members"]
    finally:
        admin.close()


def next_release(folder: Path) -> Path:
    shutil.copytree(FIXTURES / "release", folder)
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    content = msgspec.structs.replace(manifest.content, parents=[manifest.id])
    key = load_private_key(FIXTURES / "release.pem")
    write_manifest(folder, msgspec.structs.replace(manifest, id=content_id(content), content=content), key)
    return folder


def test_redis_and_kafka_may_go_and_come_back(env: dict[str, str], stack: Stack) -> None:
    running = worker(env)
    put_windows(env, {"g0": window(0, AT)})
    wait_for("the worker works", lambda: bool(states(env, ["g0"])))
    stack.down(("redis",))
    put_windows(env, {f"g{n}": window(n, AT + 1) for n in range(1, 50)})
    time.sleep(8)  # it can't be asked whether it has noticed yet
    stack.up(("redis",))
    wait_for("what came meanwhile", lambda: len(states(env, [f"g{n}" for n in range(50)])) == 50)
    stack.down(("kafka",))
    time.sleep(2)
    stack.up(("kafka",))
    put_windows(env, {"g60": window(1, AT + 2)})
    wait_for("what came after", lambda: bool(states(env, ["g60"])))
    _, said = stopped(running)
    assert said.count("Redis failed") == 1


def stand_in(env: dict[str, str], stop: threading.Event) -> None:
    """The stream job in ten lines: one window per event."""
    seen: dict[str, list[Event]] = {}
    consumer = KafkaConsumer(EVENTS_TOPIC, bootstrap_servers=env["BEFOREHAND_KAFKA"], auto_offset_reset="earliest")
    producer = KafkaProducer(bootstrap_servers=env["BEFOREHAND_KAFKA"])
    while not stop.is_set():
        for messages in consumer.poll(timeout_ms=100).values():
            for one in messages:
                event = decode_event(one.value)
                seen.setdefault(event.user_id, []).append(event)
                folded = Window(fold(seen[event.user_id], 50), one.timestamp)
                producer.send(WINDOWS_TOPIC, msgspec.json.encode(folded), one.key)
    consumer.close()
    producer.close()


def test_replay_measures_from_outside_and_waits_for_the_last_state(env: dict[str, str], tmp_path: Path) -> None:
    def lines(first: int, count: int) -> bytes:
        # two users, three events to a millisecond, every tenth one late
        return b"".join(
            encode_event(
                Event(
                    event_id=f"r{n}",
                    user_id=f"r{n % 2}",
                    item_id=f"item-{n % 60:03d}",
                    kind=Kind.CLICK,
                    at=AT + n // 6 - (50 if n % 10 == 0 else 0),
                )
            )
            + b"\n"
            for n in range(first, first + count)
        )

    (tmp_path / "history.jsonl").write_bytes(lines(0, 60))
    (tmp_path / "events.jsonl").write_bytes(lines(60, 240) + b"{\n")
    stop = threading.Event()
    job = threading.Thread(target=stand_in, args=(env, stop))
    job.start()
    running = worker(env)
    command = [sys.executable, "-m", "nearline", "replay", str(tmp_path / "events.jsonl"), "--json", "--wait-idle"]
    command += ["--bootstrap", str(tmp_path / "history.jsonl"), "--rate", "100", "--measure", "5"]
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    finally:
        stop.set()
        job.join()
        stopped(running)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["events"], result["bad"], result["unseen"]) == (240, 1, 0)
    assert result["freshness_ms"]["samples"] >= 40
    assert 0 < result["freshness_ms"]["p50"] <= result["freshness_ms"]["p99"] <= result["freshness_ms"]["max"]
    final = states(env, ["r0", "r1"])
    whole = [decode_event(raw) for raw in lines(0, 300).splitlines()]
    for user, state in final.items():
        newest = fold([event for event in whole if event.user_id == user], 50)
        assert state.times == [event.at for event in newest][: len(state.times)]
