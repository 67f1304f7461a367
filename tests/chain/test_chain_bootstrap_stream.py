"""History and live events meet on a real broker and cluster: the windows are those of all events at once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stream_bench import WINDOW, Bench, disordered, naive, settle_on

from infra import environments
from infra.paths import ROOT, Layout
from nearline.forgotten import ask_to_forget
from nearline.topics import ensure_topics
from schemas.event import Forget

pytestmark = pytest.mark.slow

NUM_USERS = 60
AT = 1_262_304_000_000


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bootstrap"))
    try:
        yield made
    finally:
        made.close()


def bootstrap(bench: Bench, history: Path) -> dict[str, Any]:
    environ = {**os.environ, **bench.stack.environment(), "BEFOREHAND_STATE": str(bench.state)}
    command = [sys.executable, "-m", "nearline", "replay", "--bootstrap", str(history), "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in events), encoding="utf-8")
    return path


def test_before_while_and_after_the_stream_starts(bench: Bench, tmp_path: Path) -> None:
    rng = random.Random(17)
    users = [f"u{number}" for number in range(NUM_USERS)]
    events = disordered(rng, users, 150)
    half = len(events) // 2
    history = events[: half + half // 5]  # the export reaches into what is live already
    live = events[half:]
    ensure_topics(bench.kafka)
    ask_to_forget(bench.kafka, Forget(user_id="u7", at=AT + 40))
    bench.send(live[: len(live) // 3])  # live before anything reads
    told = bootstrap(bench, write(tmp_path / "history.jsonl", history))
    assert 0 < told["history"] < len(history), "only what can be in a window is sent"
    assert told["history_forgotten"] > 0
    bench.deploy()
    bench.send(live[len(live) // 3 :])
    expected = naive([one for one in events if one["user_id"] != "u7" or one["at"] > AT + 40])
    assert all(len(one) <= WINDOW for one in expected.values())
    settle_on(bench, {user: window for user, window in expected.items() if window})

    bootstrap(bench, tmp_path / "history.jsonl")  # a second time, into the running job
    last = {**events[0], "event_id": "last", "user_id": "barrier"}
    bench.send([last])
    settle_on(bench, {**expected, **naive([last])})


TOPICS_TWICE = """
import sys
from schemas.topics import missing_topics
from streaming import topics, windows
topics.missing_topics = lambda there: missing_topics(set())  # as if another one made them after we looked
print(windows.make_topics(windows.start_java(windows.find_jars()), sys.argv[1]))
"""


def test_topics_that_somebody_else_makes_at_the_same_time(bench: Bench) -> None:
    ensure_topics(bench.kafka)
    environ = {**os.environ, "BEFOREHAND_STATE": str(bench.state)}
    command = [environments.ensure(Layout.current(), "streaming"), "-c", TOPICS_TWICE, bench.kafka]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
