"""``beforehand worker``."""

from __future__ import annotations

import argparse
import signal
from contextlib import suppress
from threading import Event as Flag
from typing import Any

from nearline.broker import KafkaSource
from nearline.following import ReleaseFollower
from nearline.forgotten import read_forgotten
from nearline.metrics import Tally
from nearline.stepping import ROW_CACHE_BYTES
from nearline.store import Forgotten, StateStore
from nearline.topics import ensure_topics
from nearline.worker import Worker
from schemas.cli import Result, say, verb
from schemas.errors import StoreError
from schemas.locations import address
from schemas.plan import load_plan
from schemas.registry import Registry
from schemas.units import num_bytes


def add_worker(verbs: Any) -> None:
    """Add the verb to the room's parser."""
    sub = verb(
        verbs,
        "worker",
        _run,
        "Encode users' windows into Redis, until stopped. Run several to share the work; stop with Ctrl-C or SIGTERM.",
        "worker --until-idle 10 --json",
    )
    ends = sub.add_mutually_exclusive_group()
    ends.add_argument("--once", action="store_true", help="stop at the end of the windows topic")
    ends.add_argument("--until-idle", type=float, metavar="S", help="stop after S seconds without a record")
    sub.add_argument(
        "--release",
        metavar="ID",
        help="encode with this release and stay with it (default: current, and the canary for its share)",
    )
    sub.add_argument(
        "--row-cache",
        type=num_bytes,
        default=ROW_CACHE_BYTES,
        metavar="SIZE",
        help="memory for the rows of long windows (default: 256MB)",
    )
    sub.add_argument("--metrics-port", type=int, metavar="P", help="Prometheus metrics at http://HOST:P/metrics")
    sub.add_argument("--metrics-host", default="127.0.0.1", metavar="HOST", help="another than %(default)s: in a pod")


def _run(args: argparse.Namespace) -> Result:
    plan = load_plan()
    kafka, redis_url = address("kafka"), address("redis")
    stop = Flag()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    tally = Tally()
    if args.metrics_port is not None:
        tally.serve(args.metrics_port, args.metrics_host)
    follower = ReleaseFollower(Registry(), args.release)
    serving = follower.first()
    ensure_topics(kafka)
    forgotten = [Forgotten(user_id, at=at) for user_id, at in read_forgotten(kafka).items()]
    store, source = StateStore.connect(redis_url, plan), KafkaSource(kafka)
    say(f"encoding with {serving}; Ctrl-C stops")
    try:
        worker = Worker(
            source,
            store,
            follower,
            serving,
            candidates_per_s=plan.nearline.candidates_per_s,
            tally=tally,
            stop=stop,
            row_cache_bytes=args.row_cache,
        )
        worker.remember(forgotten)
        worker.run(once=args.once, until_idle_s=args.until_idle)
    finally:
        with suppress(StoreError):  # a broker that is gone has nothing to be told
            source.close()
        store.close()
        follower.close()
    return tally.summary()
