"""One fault after the other under load, and what the clients saw of each: ``bench online --faults``."""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis as redis_py

from online.bench.load import Report
from online.bench.phases import CONNECTIONS, SUMMED, capacity_of, totals
from online.bench.stage import Users, checked_size, job_of, newest_release, state_folder
from online.bench.stand import Address, OwnRedis, generate, service
from online.bench.synthetic import corrupt, make_failing, make_release, make_variant, promote
from online.release import load
from schemas.cli import Result, say, step
from schemas.release import Manifest, load_public_key

SHARE, OVERLOAD = 0.6, 3.0  # of the capacity
MODULE = "online.bench.stepped"
SLOW_MS, EVERY_S = 25, 0.05
"""Redis answers nobody for so long, so often: half of the look-ups wait, many longer than the store's time-out."""
LOAD_S = 5.0
"""What the service may take to see that another release was promoted, and to load it."""
UNLIKELY_FEWER = 1.05
"""Arrivals are drawn: so many more are planned than are wanted."""


@dataclass
class Stand:
    """Everything that can be broken."""

    folder: Path
    redis: OwnRedis
    users: Users
    good: Manifest
    broken: Manifest
    failing: Manifest
    addresses: list[Address]
    stack: ExitStack
    spare: list[Address] = field(default_factory=list)

    def serve(self) -> Address:
        """One more instance."""
        return self.stack.enter_context(service(self.folder, self.redis.url, MODULE))


@dataclass(frozen=True)
class Fault:
    """``act`` breaks and mends within so many seconds, while the load goes on; ``mend`` is done after it."""

    name: str
    act: Callable[[Stand, float], None]
    mend: Callable[[Stand], None] = lambda _stand: None
    prepare: Callable[[Stand], None] = lambda _stand: None
    rate: float = SHARE
    parts: int = 1  # of the requests


def bench_faults(args: argparse.Namespace) -> Result:
    """Load under every fault in turn. ``requests`` of them at least; the figures by fault are under ``faults``."""
    source = args.release or newest_release()
    with ExitStack() as stack:
        stand = _set_up(source, args, stack)
        release = load(stand.folder / "release", load_public_key(stand.folder / "keys" / "release.pub"))
        expected = stand.users.expect(release, stand.folder / "expected", args.k)
        del release
        stand.addresses = [stand.serve()]
        asked = {"users": args.users, "k": args.k}
        capacity, full = capacity_of(stand.addresses, expected, min(args.seconds, 5.0), asked)
        wanted, reports = args.requests / sum(fault.parts for fault in FAULTS), dict[str, Report]()
        for fault in FAULTS:
            rate = fault.rate * capacity
            settings = {"seconds": UNLIKELY_FEWER * wanted * fault.parts / rate, "rate": rate}
            with step(fault.name) as made:
                reports[fault.name] = report = _under_load(stand, fault, expected, settings | asked)
                made(f"{report.requests:,} requests, {report.errors} errors, {report.late} late, {_rungs(report)}")
    result: dict[str, Any] = {"capacity_per_s": capacity, "items": stand.good.content.model.num_items}
    result |= totals([full, *reports.values()])
    result["faults"] = {name: totals([report]) | {"rungs": report.rungs} for name, report in reports.items()}
    say("  " + ", ".join(f"{name} {result[name]:,}" for name in SUMMED))
    return result


def _set_up(source: Path, args: argparse.Namespace, stack: ExitStack) -> Stand:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="beforehand-faults-")))
    key = folder / "keys" / "release.pem"
    with step("releases") as made:
        stack.enter_context(state_folder(folder))
        good = make_release(source, folder / "release", checked_size(source, args.items), key)
        broken = make_variant(folder / "release", folder / "broken", key, {})
        corrupt(folder / "broken")
        failing = make_failing(folder / "release", folder / "failing", key)
        promote(good, folder / "release")
        made(f"{good.content.model.num_items:,} items")
    redis = OwnRedis(folder)
    redis.start()
    stack.callback(redis.stop)
    users = Users(good, args.users)
    users.store(redis.url)
    return Stand(folder, redis, users, good, broken, failing, [], stack)


def _under_load(stand: Stand, fault: Fault, expected: Path, settings: dict[str, Any]) -> Report:
    fault.prepare(stand)
    job = job_of([*stand.addresses, *stand.spare], expected, connections=CONNECTIONS, **settings)
    with ThreadPoolExecutor(1) as pool:
        report = pool.submit(generate, job)
        fault.act(stand, job.seconds)
        found = report.result()
    fault.mend(stand)
    return found


def _nothing(_stand: Stand, _seconds: float) -> None:
    """The load alone."""


def _pause(stand: Stand, seconds: float) -> None:
    """Half of the time Redis stands still, four times."""
    for _ in range(4):
        time.sleep(seconds / 8)
        stand.redis.signal(signal.SIGSTOP)
        time.sleep(seconds / 8)
        stand.redis.signal(signal.SIGCONT)


def _slow(stand: Stand, seconds: float) -> None:
    ends = time.monotonic() + seconds
    redis: Any = redis_py
    with redis.Redis.from_url(stand.redis.url) as client:
        while time.monotonic() < ends:
            client.execute_command("CLIENT", "PAUSE", SLOW_MS, "ALL")
            time.sleep(EVERY_S)


def _kill(stand: Stand, seconds: float) -> None:
    """Gone for a third of the time, back and empty for a third, then filled again."""
    time.sleep(seconds / 6)
    stand.redis.signal(signal.SIGKILL)
    time.sleep(seconds / 3)
    stand.redis.start()
    time.sleep(seconds / 3)
    stand.users.store(stand.redis.url)


def _promote_broken(stand: Stand, seconds: float) -> None:
    time.sleep(seconds / 4)
    promote(stand.broken, stand.folder / "broken")
    time.sleep(seconds / 2)
    promote(stand.good, stand.folder / "release")


def _promote_failing(stand: Stand, seconds: float) -> None:
    """Every other user's state is of a release whose decoder fails at each run."""
    promote(stand.failing, stand.folder / "failing")
    time.sleep(min(LOAD_S, seconds / 4))
    stand.users.store(stand.redis.url, stand.failing.id, every=2)
    time.sleep(seconds / 2)
    promote(stand.good, stand.folder / "release")
    stand.users.store(stand.redis.url)


def _kill_instance(stand: Stand, seconds: float) -> None:
    time.sleep(seconds / 3)
    os.kill(stand.addresses[0].pid, signal.SIGKILL)


def _one_more(stand: Stand) -> None:
    stand.spare = [stand.serve()]


def _start_again(stand: Stand) -> None:
    stand.addresses, stand.spare = stand.spare, []


def _step_clock(stand: Stand, seconds: float) -> None:
    """Two days ahead, two days back, right again."""
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
        time.sleep(seconds / 4)
        os.kill(stand.addresses[0].pid, number)


FAULTS = (
    Fault("none", _nothing),
    Fault("redis_paused", _pause),
    Fault("redis_slow", _slow),
    Fault("redis_killed", _kill),
    Fault("broken_release", _promote_broken),
    Fault("decode_fails", _promote_failing),
    Fault("overload", _nothing, rate=OVERLOAD, parts=2),
    Fault("instance_killed", _kill_instance, prepare=_one_more, mend=_start_again),
    Fault("clock_stepped", _step_clock),
)


def _rungs(report: Report) -> str:
    return ", ".join(f"{name} {count}" for name, count in report.rungs.items())
