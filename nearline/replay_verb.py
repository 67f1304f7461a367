"""``beforehand replay``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from redis.exceptions import RedisError

from nearline.redis_link import connect
from nearline.replay import Outcome, publish, sample_users
from nearline.topics import ensure_topics
from nearline.visibility import Watch, watching, watermarks
from schemas.cli import Result, bar, say, verb
from schemas.errors import DataError, StoreError
from schemas.locations import address
from schemas.plan import load_plan

STRAGGLERS_S = 10.0
STUCK_S = 120.0
"""``--wait-idle`` gives up after this long without any progress; a stream job that starts takes a while."""


def add_replay(verbs: Any) -> None:
    """Add the verb to the room's parser."""
    sub = verb(
        verbs,
        "replay",
        _run,
        "Publish events from JSON-lines files, and measure or wait until they are visible.",
        "replay events.jsonl --rate 500 --measure 50 --json",
    )
    sub.add_argument("files", nargs="+", type=Path, metavar="FILE", help="one event a line (schemas/json)")
    sub.add_argument("--rate", type=_rate, default=None, metavar="N", help="events a second, or max (the default)")
    sub.add_argument("--bootstrap", type=Path, metavar="FILE", help="history to publish first, as fast as possible")
    sub.add_argument("--measure", type=_count, metavar="N", default=0, help="measure event-to-visible for N users")
    sub.add_argument("--probe", metavar="USERS", default="", help="measure for these users (ids with commas between)")
    sub.add_argument("--wait-idle", action="store_true", help="wait until the state of every user is up to date")


def _rate(text: str) -> float | None:
    if text == "max":
        return None
    rate = float(text)
    if rate <= 0:
        raise argparse.ArgumentTypeError("a rate is above zero, or max")
    return rate


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("a count is zero or more")
    return count


def _run(args: argparse.Namespace) -> Result:
    files: list[Path] = args.files
    for path in [*files, *([args.bootstrap] if args.bootstrap else [])]:
        if not path.is_file():
            raise DataError("no such file", where=str(path), mend="Give files of events, one JSON object a line.")
    kafka = address("kafka")
    ensure_topics(kafka)
    measured: set[str] = {user for user in args.probe.split(",") if user}
    measured |= sample_users(files, args.measure) if args.measure else set()
    visible = bool(measured or args.wait_idle)
    with ExitStack() as stack:
        if args.bootstrap:
            history = publish(kafka, [args.bootstrap], rate=None)
            say(f"history: {history.events:,} events")
            if visible:
                with watching(address("redis"), set()) as watch:
                    wait_idle(history.newest, watch)
        watch = stack.enter_context(watching(address("redis"), measured)) if visible else None
        outcome = publish(kafka, files, rate=args.rate, before_send=watch.sent if watch else None)
        result = {"events": outcome.events, "bad": outcome.bad, **_speed(outcome)}
        if watch and measured:
            result |= _freshness(watch)
        if watch and args.wait_idle:
            result["waited_s"] = wait_idle(outcome.newest, watch)
    _tell(result)
    return result


def _speed(outcome: Outcome) -> dict[str, float]:
    return {"seconds": round(outcome.seconds, 3), "rate": round(outcome.rate, 1)}


def _freshness(watch: Watch) -> dict[str, Any]:
    """Wait for the stragglers, then sum up."""
    give_up_at = time.monotonic() + STRAGGLERS_S
    while watch.unseen and time.monotonic() < give_up_at:
        time.sleep(0.1)
    watch.look()
    values = np.asarray(watch.freshness_ms)
    p50, p99, top = np.percentile(values, (50, 99, 100)).round(1).tolist() if len(values) else (None, None, None)
    return {"freshness_ms": {"p50": p50, "p99": p99, "max": top, "samples": len(values)}, "unseen": watch.unseen}


def wait_idle(newest: Mapping[str, int], watch: Watch) -> float:
    """Wait until every user's state has reached ``newest`` and nothing changes any more; returns the seconds.

    The stillness is for what a watermark does not show: the later ones of several events at the same time, and events
    older than the newest. Events too far ahead of the clock are dead letters by the plan and are not waited for.

    Raises:
        StoreError: no progress for two minutes, naming a user who waits.
    """
    plan = load_plan()
    future_ms = (time.time() + plan.nearline.max_future) * 1000
    still_s = max(1.0, 3 * plan.nearline.refresh)
    open_users = {user: at for user, at in newest.items() if at <= future_ms}
    client: Any = connect(address("redis"))
    begun = moved_at = time.monotonic()
    with bar() as progress:
        task = progress.add_task("states up to date", total=len(open_users))
        while open_users or time.monotonic() - watch.changed_at < still_s:
            before = len(open_users)
            open_users = _behind(client, open_users)
            progress.advance(task, before - len(open_users))
            if len(open_users) < before or watch.changed_at > moved_at:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > STUCK_S:
                raise _stuck(open_users)
            time.sleep(0.25)
    client.close()
    return round(time.monotonic() - begun, 3)


def _behind(client: Any, users: Mapping[str, int]) -> dict[str, int]:
    try:
        found = watermarks(client, users)
    except RedisError as error:
        raise StoreError(
            f"Redis failed: {error}", where="BEFOREHAND_REDIS", mend="See `./beforehand status`."
        ) from None
    return {user: at for user, at in users.items() if found.get(user, -1) < at}


def _stuck(users: Mapping[str, int]) -> StoreError:
    return StoreError(
        f"{len(users)} users' states stay behind their newest event",
        where="--wait-idle",
        value=next(iter(users)),
        mend="See that the stream job and a worker run, and what is in the dead-letter topic.",
    )


def _tell(result: Mapping[str, Any]) -> None:
    say(f"{result['events']:,} events in {result['seconds']} s, {result['bad']} bad lines")
    if fresh := result.get("freshness_ms"):
        say(f"visible after {fresh['p50']} ms (p50), {fresh['p99']} ms (p99); {result['unseen']} never")
