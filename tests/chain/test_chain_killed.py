"""Kill -9 of every process of the near-line path, one at a time under traffic that stops at the kill.

Afterwards every user's window and state must be that of the naive rule, also the users of the kills before.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from stream_bench import AT, Bench, event, naive
from waiting import kill, wait_for

from infra.paths import ROOT
from schemas.keys import state_key
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import CATALOGUE, MANIFEST, Catalogue, Manifest
from schemas.state import decode_state

pytestmark = pytest.mark.slow

FIXTURES = ROOT / "tests" / "fixtures"
USERS, RATE = 60, 500
State = list[tuple[str, int]]  # item and time of each event, newest first


class Chain(Bench):
    """The whole path; ``sent`` is every event of every kill so far."""

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self.redis = self.stack.up(("redis",))["BEFOREHAND_REDIS"]
        manifest = msgspec.json.decode((FIXTURES / "release" / MANIFEST).read_bytes(), type=Manifest)
        registry = Registry(f"sqlite:///{state / 'registry.db'}")
        row = ReleaseRow(manifest.id, str(FIXTURES / "release"), "h", {}, Status.FUTURE, manifest.made_at)
        registry.publish(row, why="test")
        registry.promote(manifest.id, why="test")
        self.model_window = manifest.content.model.window
        catalogue = (FIXTURES / "release" / CATALOGUE).read_bytes()
        self.items = msgspec.msgpack.decode(catalogue, type=Catalogue).item_ids
        self.sent: list[dict[str, Any]] = []
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")}
        settings = {"BEFOREHAND_STATE": str(self.state), "BEFOREHAND_VERIFY_KEY": str(FIXTURES / "release.pub")}
        with (self.state / "worker.log").open("ab") as log:
            command = [str(ROOT / "beforehand"), "worker"]
            self.workers.append(subprocess.Popen(command, env=environ | settings, stdout=log, stderr=log))

    def states(self, users: list[str]) -> dict[str, State]:
        with redis.Redis.from_url(self.redis) as client:
            raws = client.mget([state_key(user) for user in users])
        decoded = {user: decode_state(raw) for user, raw in zip(users, raws, strict=True) if raw}
        return {
            user: [(self.items[item], at) for item, at in zip(state.items, state.times, strict=True)]
            for user, state in decoded.items()
        }

    def send_until(self, stop: threading.Event, users: list[str]) -> None:
        """Events of these users at a steady rate: ties, 15 % out of order, a tenth sent again later.

        What was sent is counted as sent, whatever the broker has said by then: the producer goes on trying.
        """
        draw, begun = random.Random(users[0]), time.monotonic()
        mine: list[dict[str, Any]] = []
        for number in itertools.count():
            if stop.wait(max(0.0, begun + number / RATE - time.monotonic())):
                return
            late = draw.randrange(200) if draw.random() < 0.15 else 0
            one = {**event(draw.choice(users), number, AT + number // 3 - late), "item_id": draw.choice(self.items)}
            one = draw.choice(mine) if mine and draw.random() < 0.1 else one
            mine.append(one)
            self.sent.append(one)
            self.producer.send("events", key=one["user_id"].encode(), value=msgspec.json.encode(one))

    def close(self) -> None:
        """End all of it, whatever state it is in."""
        for worker in self.workers:
            worker.kill()
            worker.wait()
        super().close()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    made = Chain(tmp_path_factory.mktemp("killed"))
    try:
        made.deploy()
        made.start_worker()
        yield made
    finally:
        made.close()


def kill_task_manager(chain: Chain) -> Callable[[], Any]:
    kill(chain.pid("flink", "TaskManagerRunner"))
    return lambda: chain.stack.up(("flink",))


def kill_job_manager(chain: Chain) -> Callable[[], Any]:
    kill(chain.pid("flink", "StandaloneSessionCluster"))

    def mend() -> None:
        # Without high availability it has forgotten its jobs: whoever runs it deploys again, and nothing starts anew.
        chain.stack.up(("flink",))
        assert "chk-" in chain.deploy()["resumed_from"]

    return mend


def kill_worker(chain: Chain) -> Callable[[], Any]:
    chain.workers[-1].kill()
    return chain.start_worker


def kill_broker(chain: Chain) -> Callable[[], Any]:
    kill(chain.pid("kafka"))
    return lambda: chain.stack.up(("kafka",))


def kill_redis(chain: Chain) -> Callable[[], Any]:
    """It comes back with what it saved last, which is nothing."""
    kill(chain.pid("redis"))
    return lambda: chain.stack.up(("redis",))


KILLS = (kill_task_manager, kill_job_manager, kill_worker, kill_broker, kill_redis)


@pytest.mark.parametrize("victim", KILLS, ids=[victim.__name__ for victim in KILLS])
def test_nothing_is_lost_by(victim: Callable[[Chain], Callable[[], Any]], chain: Chain) -> None:
    wait_for("a checkpoint", lambda: any(chain.state.glob("run/flink/checkpoints/*/chk-*/_metadata")))
    users, stop = [f"{victim.__name__}-{number}" for number in range(USERS)], threading.Event()
    traffic = threading.Thread(target=chain.send_until, args=(stop, users))
    traffic.start()
    wait_for("all users have states", lambda: len(chain.states(users)) == USERS)
    mend = victim(chain)
    stop.set()
    traffic.join()
    mend()
    chain.producer.flush()
    windows = naive(chain.sent)
    expected = {
        user: [(one["item_id"], one["at"]) for one in window[: chain.model_window]] for user, window in windows.items()
    }
    wait_for("every state is the reference's", lambda: chain.states(list(expected)) == expected)

    def kept() -> dict[str, Any]:
        found = chain.windows()
        return {user: msgspec.to_builtins(found[user].events) for user in windows}

    wait_for("every window is, also where it is longer than a state", lambda: kept() == windows)
    assert chain.dead_letters() == []
