"""``beforehand forget``."""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from nearline.forgotten import ask_to_forget, read_forgotten, topic_settings, watch_windows
from nearline.store import Forgotten, StateStore
from nearline.topics import ensure_topics
from schemas.cli import Result, emit, say, verb
from schemas.errors import DataError
from schemas.event import Forget
from schemas.keys import check_user_id
from schemas.locations import address
from schemas.plan import load_plan
from schemas.topics import DEAD_LETTERS_TOPIC, EVENTS_TOPIC, WINDOWS_TOPIC

WAIT_S = 60.0
CLEAN, PENDING, EXPIRES = "clean", "pending", "expires"


class TierReport(msgspec.Struct, frozen=True):
    """Where one tier stands: ``clean``; ``pending`` until something is done; ``expires`` by itself, at ``by`` (ms)."""

    tier: str
    state: str
    why: str
    by: int | None = None


def add_forget(verbs: Any) -> None:
    """Add the verb to the room's parser."""
    sub = verb(
        verbs,
        "forget",
        _run,
        "Forget what a user did up to now, in every tier, and report when each is clean. Doing it twice is safe.",
        "forget USER --json",
    )
    sub.add_argument("user", nargs="?", metavar="USER", help="the user's id")
    sub.add_argument("--list", action="store_true", help="print every forgotten user and time, one JSON object a line")
    sub.add_argument(
        "--wait", type=float, default=WAIT_S, metavar="S", help="for the stream job (default: %(default)g)"
    )


def _run(args: argparse.Namespace) -> Result:
    kafka = address("kafka")
    if args.list:
        return _list(kafka)
    if not args.user:
        raise DataError("no user is named", where="USER", mend="Name one, or see them all with --list.")
    user_id, plan, begun = check_user_id(args.user), load_plan(), time.monotonic()
    ensure_topics(kafka)
    store = StateStore.connect(address("redis"), plan)
    try:
        tiers, at = _forget(kafka, store, user_id, args.wait)
    finally:
        store.close()
    for one in tiers:
        until = f" by {datetime.fromtimestamp(one.by / 1000, UTC):%Y-%m-%d %H:%M} UTC" if one.by else ""
        say(f"{one.tier:<13} {one.state}{until}: {one.why}")
    return {
        "user_id": user_id,
        "forgotten_at": at,
        "clean": all(one.state != PENDING for one in tiers if one.tier in ("list", "redis", "stream")),
        "seconds": round(time.monotonic() - begun, 3),
        "tiers": msgspec.to_builtins(tiers),
    }


def _list(kafka: str) -> Result:
    ensure_topics(kafka)
    found = read_forgotten(kafka)
    for user_id, at in sorted(found.items()):
        emit({"user_id": user_id, "at": at})
    return {"users": len(found)}


def _forget(kafka: str, store: StateStore, user_id: str, wait_s: float) -> tuple[list[TierReport], int]:
    """The request comes first: once it is in the topic, nothing that fails later can undo it."""
    # A device's clock may be ahead: what it already did counts as before.
    at = max(round(time.time() * 1000), store.newest_time(user_id))
    with watch_windows(kafka) as windows:
        ask_to_forget(kafka, Forget(user_id=user_id, at=at))
        store.forget([Forgotten(user_id, at=at)])
        streamed = windows.wait_clean(user_id, at, wait_s)
    gone = store.num_kept(user_id) == 0 or store.newest_time(user_id) > at
    return [
        TierReport("list", CLEAN, "the request is kept for good: replays, rebuilds and history obey it"),
        TierReport("redis", CLEAN if gone else PENDING, "state and candidates are deleted, older ones are refused"),
        TierReport("online", CLEAN, "told to drop the user; without the message its cache does within a minute"),
        TierReport("stream", CLEAN, "the user's window is dropped")
        if streamed
        else TierReport("stream", PENDING, "the stream job has not answered; it will when it runs"),
        *_expiring(kafka),
        TierReport("releases", PENDING, "user id and profile bucket stay until the next build without the user"),
        TierReport("edge", CLEAN, "bundles hold no user; a device keeps its own events only"),
    ], at


def _expiring(kafka: str) -> list[TierReport]:
    """Old records go when the broker cleans up, at the latest so long after they were written."""
    now = round(time.time() * 1000)
    reports: list[TierReport] = []
    for topic, setting in [
        (WINDOWS_TOPIC, "max.compaction.lag.ms"),
        (EVENTS_TOPIC, "retention.ms"),
        (DEAD_LETTERS_TOPIC, "retention.ms"),
    ]:
        lasts_ms = int(topic_settings(kafka, topic)[setting])
        if lasts_ms < 0:
            reports.append(TierReport(topic, PENDING, f"the topic keeps records for good: set its {setting}"))
        else:
            reports.append(TierReport(topic, EXPIRES, f"old records go by the topic's {setting}", now + lasts_ms))
    return reports
