"""`bench stream` at a small size gives every figure; the job that it compares with keeps the naive rule's windows."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from kafka import KafkaAdminClient
from stream_bench import WINDOW, Bench, disordered, naive
from waiting import wait_for

from infra.paths import ROOT
from schemas.window import decode_window

pytestmark = pytest.mark.slow

FIGURES = (
    "window_events_per_cpu_s",
    "path_events_per_cpu_s",
    "freshness_p50_ms",
    "freshness_p99_ms",
    "state_bytes_per_user",
    "rebuild_states_per_s",
    "datastream_events_per_cpu_s",
)
SMALL = (
    "--users=500", "--events=5000", "--path-events=2000", "--seconds=5", "--states=400", "--datastream-events=2000",
    "--invoices=none", f"--release={ROOT / 'tests' / 'fixtures' / 'release'}",
)  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_the_plain_job_keeps_the_same_windows(bench: Bench) -> None:
    bench.deploy()  # makes the topics
    bench.stream("stop")
    admin = KafkaAdminClient(bootstrap_servers=bench.kafka)
    names = {"plain": {"message.timestamp.type": "LogAppendTime"}, "plain-windows": {}, "plain-dead-letters": {}}
    made = {name: {"num_partitions": 2, "configs": settings} for name, settings in names.items()}
    admin.create_topics(made, wait_for_metadata=True)
    admin.close()
    events = disordered(random.Random(29), [f"u{number}" for number in range(40)], 25)
    for one in events:
        bench.producer.send("plain", json.dumps(one).encode(), one["user_id"].encode())
    bench.producer.send("plain", b'{"event_id":')
    forgotten = {"user_id": "u7", "at": max(one["at"] for one in events)}
    bench.producer.send("forgotten", json.dumps(forgotten).encode(), b"u7")
    bench.producer.flush()
    bench.stream("compare", "--topic", "plain", "--set", f"model.window={WINDOW}")
    expected = naive(events) | {"u7": []}

    def kept() -> dict[str, list[object]]:
        """The last record of each user; a user's records are written in order by one task."""
        records = sorted(bench.read("plain-windows"), key=lambda record: record.timestamp)
        found = dict(record.value.decode().split("\n", 1) for record in records)
        return {user: msgspec.to_builtins(decode_window(raw).events) if raw else [] for user, raw in found.items()}

    wait_for("the windows equal the reference", lambda: kept() == expected)
    wait_for("the dead letter", lambda: len(bench.read("plain-dead-letters")) > 0)
    (letter,) = bench.read("plain-dead-letters")
    assert json.loads(letter.value)["payload"] == '{"event_id":'


def test_every_figure_is_there_and_nothing_is_left(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")}
    environ |= {"BEFOREHAND_STATE": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [str(ROOT / "beforehand"), "bench", "stream", *SMALL, "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(found[name] > 0 for name in FIGURES)
    told = found["measured"]
    assert (told["users"], told["freshness"]["never_visible"]) == (500, 0)
    assert told["worker"]["lost_partitions"] == told["worker"]["dead_letters"] == 0
    assert told["window_job"]["warm_up_excluded"] in (True, False)
    assert not list(tmp_path.glob("beforehand-bench-*"))
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""
