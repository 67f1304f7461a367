"""``beforehand replay``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from nearline.forgotten import read_forgotten
from nearline.replay import Outcome, publish, sample_users
from nearline.topics import ensure_topics
from nearline.visibility import Watch, watching
from nearline.waiting import wait_idle
from schemas.cli import Result, say, verb
from schemas.errors import DataError
from schemas.locations import address
from schemas.plan import load_plan

STRAGGLERS_S = 10.0


def add_replay(verbs: Any) -> None:
    """Add the verb to the room's parser."""
    sub = verb(
        verbs,
        "replay",
        _run,
        "Publish events from JSON-lines files, and measure or wait until they are visible.",
        "replay events.jsonl --rate 500 --measure 50 --json",
    )
    sub.add_argument("files", nargs="*", type=Path, metavar="FILE", help="one event a line (schemas/json)")
    sub.add_argument("--rate", type=_rate, default=None, metavar="N", help="events a second, or max (the default)")
    sub.add_argument("--bootstrap", type=Path, metavar="FILE", help="history: each user's newest events go first")
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
    if not files and not args.bootstrap:
        raise DataError(
            "there is nothing to send", where="FILE", mend="Name files of events, or history by --bootstrap."
        )
    for path in [*files, *([args.bootstrap] if args.bootstrap else [])]:
        if not path.is_file():
            raise DataError("no such file", where=str(path), mend="Give files of events, one JSON object a line.")
    kafka, plan = address("kafka"), load_plan()
    ensure_topics(kafka)
    forgotten = read_forgotten(kafka)
    measured: set[str] = {user for user in args.probe.split(",") if user}
    measured |= sample_users(files, args.measure) if args.measure else set()
    visible = bool(measured or args.wait_idle)
    history = Outcome()
    with ExitStack() as stack:
        if args.bootstrap:
            history = publish(kafka, [args.bootstrap], rate=None, forgotten=forgotten, window=plan.model.window)
            say(f"history: {history.events:,} events, {history.forgotten:,} left out of forgotten users")
            if visible:
                with watching(address("redis"), set()) as watch:
                    wait_idle(history.newest, watch, plan)
        watch = stack.enter_context(watching(address("redis"), measured)) if visible else None
        before_send = watch.sent if watch else None
        outcome = publish(kafka, files, rate=args.rate, before_send=before_send, forgotten=forgotten)
        result = {"events": outcome.events, "bad": outcome.bad, "forgotten": outcome.forgotten, **_speed(outcome)}
        if args.bootstrap:
            result |= {"history": history.events, "history_forgotten": history.forgotten, "history_bad": history.bad}
        if watch and measured:
            result |= _freshness(watch)
        if watch and args.wait_idle:
            result["waited_s"] = wait_idle(outcome.newest, watch, plan)
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


def _tell(result: Mapping[str, Any]) -> None:
    say(f"{result['events']:,} events in {result['seconds']} s, {result['bad']} bad lines")
    if fresh := result.get("freshness_ms"):
        say(f"visible after {fresh['p50']} ms (p50), {fresh['p99']} ms (p99); {result['unseen']} never")
