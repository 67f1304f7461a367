"""`forget` on a real broker, cluster and Redis: nothing that is told again brings the user back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from kafka import KafkaProducer
from stream_bench import Bench
from test_chain_worker import FIXTURES, next_release, promote, stopped, worker
from waiting import wait_for

from infra.paths import ROOT
from infra.stack import Stack
from nearline.store import forgotten_key
from schemas.event import Event, encode_event
from schemas.keys import candidates_key, state_key
from schemas.names import Kind
from schemas.state import decode_state

pytestmark = pytest.mark.slow

GONE, KEPT = "gone é", "kept"


class Chain:
    """The stack, its job and its Redis, in a state folder of their own."""

    def __init__(self, state: Path) -> None:
        self.bench = Bench(state)
        self.stack: Stack = self.bench.stack
        self.stack.up(("redis",))
        self.env = {
            **os.environ,
            **self.stack.environment(),
            "BEFOREHAND_STATE": str(state),
            "BEFOREHAND_REGISTRY": f"sqlite:///{state / 'registry.db'}",
            "BEFOREHAND_VERIFY_KEY": str(FIXTURES / "release.pub"),
        }
        self.redis = redis.Redis.from_url(self.env["BEFOREHAND_REDIS"])
        self.producer = KafkaProducer(bootstrap_servers=self.bench.kafka)

    def send(self, user: str, first: int, count: int, newest_at: int) -> None:
        for n in range(first, first + count):
            at = newest_at - 60_000 * (first + count - 1 - n)
            event = Event(event_id=f"{user}-{n}", user_id=user, item_id=f"item-{n % 60:03d}", kind=Kind.CLICK, at=at)
            self.producer.send("events", encode_event(event), user.encode())
        self.producer.flush()

    def times(self, user: str) -> list[int]:
        raw = self.redis.get(state_key(user))
        return decode_state(raw).times if raw else []

    def windows(self) -> dict[str, bytes | None]:
        return {record.key.decode(): record.value for record in self.bench.read("windows")}

    def verb(self, *words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "nearline", *words, "--json"]
        done = subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    made = Chain(tmp_path_factory.mktemp("forget"))
    try:
        yield made
    finally:
        made.producer.close(timeout=5)
        made.redis.close()
        made.bench.close()


class Guard:
    """Looks at Redis all the time: a user who comes back for a moment only was brought back too."""

    def __init__(self, chain: Chain) -> None:
        self.seen = 0
        self._keys = (state_key(GONE), candidates_key(GONE))
        self._redis = redis.Redis.from_url(chain.env["BEFOREHAND_REDIS"])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(0.01):
            self.seen += int(self._redis.exists(*self._keys))

    def end(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.seen


def test_forgotten_everywhere_and_never_brought_back(chain: Chain, tmp_path: Path) -> None:
    promote(chain.env, FIXTURES / "release")
    chain.bench.deploy()
    now = round(time.time() * 1000)
    for user in (GONE, KEPT):
        chain.send(user, 0, 5, now)
    running = worker(chain.env)
    wait_for("both have states", lambda: len(chain.times(GONE)) == len(chain.times(KEPT)) == 5)

    report = chain.verb("forget", GONE)
    tiers = {one["tier"]: one["state"] for one in report["tiers"]}
    assert report["clean"]
    assert [tiers[one] for one in ("list", "redis", "stream", "online")] == ["clean"] * 4
    assert [tiers[one] for one in ("events", "windows")] == ["expires"] * 2
    assert all(one["by"] > now for one in report["tiers"] if one["state"] == "expires")
    assert chain.windows()[GONE] is None
    assert chain.verb("forget", "--list") == {"users": 1}
    guard = Guard(chain)

    # late events of before, among others
    chain.send(GONE, 5, 3, now - 1_000)
    chain.send(KEPT, 5, 1, now + 1_000)
    wait_for("an event after the late ones", lambda: len(chain.times(KEPT)) == 6)

    # the whole topic of events is read again, with nothing known
    chain.bench.stream("stop")
    chain.bench.deploy("--fresh")
    chain.send(KEPT, 6, 1, now + 2_000)
    wait_for("the replay is through", lambda: len(chain.times(KEPT)) == 7)
    wait_for("the tombstone is there again", lambda: chain.windows()[GONE] is None)

    # every user is encoded again, then again into an empty Redis
    promoted = promote(chain.env, next_release(tmp_path / "next"))
    wait_for("encoded again", lambda: decode_state(chain.redis.get(state_key(KEPT))).release == promoted)
    stopped(running)
    chain.redis.flushall()
    promote(chain.env, FIXTURES / "release")
    running = worker(chain.env)
    wait_for("rebuilt", lambda: len(chain.times(KEPT)) == 7)
    assert chain.redis.exists(forgotten_key(GONE))
    assert guard.end() == 0, "the user came back"

    # a new beginning
    came_back_at = max(report["forgotten_at"] + 1, round(time.time() * 1000))
    chain.send(GONE, 20, 1, came_back_at)
    wait_for("the user came back", lambda: chain.times(GONE) == [came_back_at])
    assert stopped(running)[0]["dead_letters"] == 0


def test_without_the_job_the_report_says_what_is_left(chain: Chain) -> None:
    chain.bench.stream("stop")
    report = chain.verb("forget", "somebody", "--wait", "1")
    assert not report["clean"]
    assert [one["tier"] for one in report["tiers"] if one["state"] == "pending"] == ["stream", "releases"]
