"""``./beforehand bench rows``: a new event by kept rows beside encoding the window whole."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nearline.encode import History, IntentEncoder, history
from nearline.release import Release, load_release
from nearline.stepping import StepEncoder, encoded_part
from nearline.window import fold
from schemas.cli import Result, say, step, verb
from schemas.errors import ReleaseError
from schemas.window import WindowEvent

AT = 1_700_000_000_000
USERS = 4
LATE = 0.02
"""Of the events come out of order, by up to fifty places."""


def add_rows(verbs: Any) -> None:
    """Add the verb to the room's parser."""
    about = "CPU and rows of a new event in windows of several lengths: rows that are kept beside whole encoding."
    sub = verb(verbs, "rows", _run, about, "bench rows --json")
    sub.add_argument(
        "--release", type=Path, required=True, metavar="FOLDER", help="with a step (`bench rows` makes it)"
    )
    sub.add_argument("--windows", type=int, nargs="+", default=[50, 200, 1000], metavar="N", help="lengths")
    sub.add_argument("--events", type=int, default=100, metavar="N", help="measured, of each user")


def _run(args: argparse.Namespace) -> Result:
    release = load_release(args.release)
    if release.step is None:
        raise ReleaseError("it has no step", where=str(args.release), mend="Build one with a longer model.window.")
    found: dict[str, Any] = {"users": USERS, "events_per_user": args.events, "late_share": LATE}
    for window in args.windows:
        with step(f"window {window}") as made:
            found |= _measure(release, window, args.events)
            made(f"{found[f'saved_at_{window}']:.1%} of the rows saved")
    say("CPU ms an event: whole / by kept rows")
    for window in args.windows:
        say(f"  {window:5}  {found[f'whole_cpu_ms_at_{window}']:8.3f} / {found[f'step_cpu_ms_at_{window}']:.3f}")
    return found


def _measure(release: Release, window: int, num_events: int) -> dict[str, Any]:
    numbers, draw = release.item_number, np.random.default_rng(window)
    steps, whole = StepEncoder(release, cache_bytes=2**31), IntentEncoder(release)
    windows = {f"u{n}": fold(_events(list(numbers), draw, window, n), window) for n in range(USERS)}
    for user, events in windows.items():
        steps.row(user, history(encoded_part(events, window), numbers, window))
    steps.num_encoded = steps.num_whole = 0
    cpu_s, worst, parts = 0.0, 0.0, list[History]()
    for n in range(num_events):
        for user in list(windows):
            late_ms = int(draw.integers(1, 50)) * 60_000 if draw.random() < LATE else 0
            item = list(numbers)[int(draw.integers(len(numbers)))]
            new = WindowEvent(f"{user}-new-{n}", item, "click", AT + n * 60_000 - late_ms)
            events = windows[user] = fold([*windows[user][::-1], new], window)
            part = history(encoded_part(events, window), numbers, window)
            took_s, row = _timed(lambda user=user, part=part: steps.row(user, part))
            cpu_s += took_s
            if n % max(1, num_events // 4) == 0:
                worst = max(worst, float(np.abs(whole.rows([part])[0] - row).max()))
                parts.append(history(events, numbers, window))
    whole_s, _ = _timed(lambda: whole.rows(parts))
    return {
        f"saved_at_{window}": round(1 - steps.num_encoded / steps.num_whole, 4),
        f"rows_per_event_at_{window}": round(steps.num_encoded / (USERS * num_events), 2),
        f"step_cpu_ms_at_{window}": round(1000 * cpu_s / (USERS * num_events), 3),
        f"whole_cpu_ms_at_{window}": round(1000 * whole_s / len(parts), 3),
        f"kept_kb_per_user_at_{window}": round(steps.num_bytes / USERS / 1024, 1),
        f"largest_difference_at_{window}": worst,
    }


def _events(items: list[str], draw: np.random.Generator, window: int, user: int) -> list[WindowEvent]:
    chosen = draw.integers(0, len(items), window)
    return [
        WindowEvent(f"u{user}-{n}", items[int(item)], "click", AT - (window - n) * 60_000)
        for n, item in enumerate(chosen)
    ]


def _timed(act: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    made = act()
    return time.process_time() - begun, made
