"""``bench stream``: what the window job, the worker and the path through both cost, and how fresh the states are."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from nearline.bench.phases import Bench
from nearline.bench.stand import Stand, tell
from nearline.bench.subject import INVOICES, Subject, choose
from schemas.cli import Result, say, verb
from schemas.locations import ROOT

ABOUT = """Measure the near-line path on services of its own: the window job's and the whole path's events per
CPU-second, event-to-visible at half of that load, bytes per user, the time to fill an empty Redis, and beside it the
same windows in PyFlink's plain DataStream way. The CPU is that of JobManager, TaskManager and worker, from /proc."""


def add_bench(verbs: Any) -> None:
    """Add ``bench`` to the room's parser; its first word is the subject, ``stream``."""
    sub = verb(verbs, "bench", bench, ABOUT, "bench stream --users 100000 --json")
    add = sub.add_argument
    add("subject", choices=["stream"], help=argparse.SUPPRESS)
    add("--users", type=_count, default=1_000_000, help="who have a window (default %(default)s)")
    add("--events", type=_count, default=1_000_000, help="of the window job's measured part (default %(default)s)")
    add("--path-events", type=_count, default=200_000, help="through job and worker (default %(default)s)")
    add("--seconds", type=_count, default=60, help="that freshness is measured for (default %(default)s)")
    add("--states", type=_count, default=100_000, help="to fill an empty Redis with (default %(default)s)")
    add("--datastream-events", type=_count, default=60_000, help="of the plain job (default %(default)s)")
    add("--datastream-mode", choices=["process", "thread"], default="process", help="of its Python (%(default)s)")
    add("--refresh", metavar="TIME", help="at most one new window per user in this time (default: the plan's)")
    add("--release", type=Path, metavar="FOLDER", help="encode with it (default: one of Online Retail, built for it)")
    add("--key", type=Path, metavar="FILE", help="public key of --release (default: release.pub beside or above it)")
    beside = ROOT.parent / INVOICES
    add("--invoices", type=Path, default=beside, metavar="FILE", help=f"of Online Retail (default ../{INVOICES})")


def bench(args: argparse.Namespace) -> Result:
    """The verb. The keys of its result are in docs/streaming.md."""
    signal.signal(signal.SIGTERM, _leave)  # what was started is still stopped
    load = round(os.getloadavg()[0], 1)
    subject = choose(args.release, args.key, args.invoices)
    with _stand(subject, args.users) as stand:
        found = Bench(stand, subject.log, args).run()
    found["measured"] |= {
        "log": subject.name,
        "customers": len(subject.log.customers),
        "lines_per_basket": round(subject.log.lines_per_basket, 1),
        "machine": {"cores": len(os.sched_getaffinity(0)), "load": load},
    }
    tell(found)
    return found


@contextmanager
def _stand(subject: Subject, users: int) -> Generator[Stand]:
    with tempfile.TemporaryDirectory(prefix="beforehand-bench-") as folder:
        say(f"services in {folder}, release {subject.release.name}")
        with closing(Stand(Path(folder), subject.release, subject.key, users)) as stand:
            yield stand


def _leave(_number: int, _frame: object) -> None:
    sys.exit(143)


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number
