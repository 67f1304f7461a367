"""`./beforehand parity`: do all tiers give the same numbers for the same input (law 8)? Standard library only.

Users of a data set are sampled; each becomes one case, written once. Every room turns the cases into its own numbers by
its own code, in its own environment, and only the numbers meet here.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from infra import environments, looks
from infra.errors import LauncherError
from infra.paths import Layout
from infra.settings import verb_environment

NOT_WELL = 4
CASES = "cases.jsonl"
REFERENCE = "online"
ROOMS = {
    "offline": ["offline", "numbers"],
    "nearline": ["nearline", "numbers"],
    "edge": ["edge", "edge", "numbers"],
    "online": ["online", "numbers"],
}
MAX_LOCAL, MAX_WINDOW = 8, 50
Numbers = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Bound:
    """How far a tier's numbers may be from the online tier's."""

    tier: str
    what: str  # key of the numbers
    most: float  # largest absolute difference of rows; for items: share of the list that may differ
    why: str


BOUNDS = (
    Bound("offline", "intent", 4e-3, "as stored: half precision"),
    Bound("offline", "prompt", 1e-4, "single precision"),
    Bound("offline", "items", 0.02, "the same list; near ties may change places"),
    Bound("offline", "prompted_items", 0.02, "the same list; near ties may change places"),
    Bound("nearline", "intent", 4e-3, "as stored: half precision"),
    Bound("nearline", "items", 0.02, "the same list; near ties may change places"),
    Bound("nearline", "scores", 2e-2, "of states in half precision"),
    Bound("edge", "prompt", 1e-4, "single precision"),
)


def main(args: list[str]) -> int:
    """Exit code 0: all within the bounds; 4: one is not."""
    options = _parser().parse_args(args)
    layout = Layout.current()
    release = options.release or _current()
    cases = sample(replay_file(layout, options.data), options.users)
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        lines = "".join(f"{json.dumps(case)}\n" for case in cases)
        (folder / CASES).write_text(lines, encoding="utf-8")
        numbers = {room: _ask(layout, room, folder, release) for room in ROOMS}
    rows = compare(numbers)
    worst = next((row for row in rows if not row["within"]), None)
    problem = f"{worst['tier']} {worst['what']} is {worst['found']:.3g} from online" if worst else ""
    for row in rows:
        mark = "✓" if row["within"] else "✗"
        print(
            f"{mark} {row['tier']:<9} {row['what']:<15} {row['found']:.2g} of {row['most']:g}  ({row['why']})",
            file=sys.stderr,
        )
    if options.json:
        # JSON has no infinity: null is a difference that has no size.
        plain = [{**row, "found": row["found"] if math.isfinite(row["found"]) else None} for row in rows]
        told = {"release": release, "users": len(cases), "reference": REFERENCE, "compared": plain}
        mend = "See docs/runbook.md#tiersdiffer."
        print(json.dumps(told | ({"error": problem, "where": "parity", "mend": mend} if problem else {})))
    return NOT_WELL if problem else 0


def compare(numbers: dict[str, Numbers], bounds: tuple[Bound, ...] = BOUNDS) -> list[dict[str, Any]]:
    """One row for each bound: the largest difference over the cases, the user it was found at, and whether it holds.

    Without a case nothing is shown to agree, and every tier is as far away as can be.
    A tier that has no numbers for a case that the online tier has is as far away as can be.
    """
    rows = []
    for bound in bounds:
        found, user = (0.0, "") if numbers[REFERENCE] else (float("inf"), "nobody was compared")
        for name, reference in numbers[REFERENCE].items():
            own = numbers[bound.tier].get(name, {}).get(bound.what)
            far = difference(bound.what, own, reference[bound.what]) if own is not None else float("inf")
            if far > found:
                found, user = far, name
        within = found <= bound.most
        row = {"tier": bound.tier, "what": bound.what, "found": found, "most": bound.most, "within": within}
        rows.append({**row, "why": bound.why, "user": user, "cases": len(numbers[bound.tier])})
    return rows


def difference(what: str, own: list[float], reference: list[float]) -> float:
    """Largest absolute difference; for items the share that is in one list only. Another length is infinitely far."""
    if what.endswith("items"):
        union = set(own) | set(reference)
        return len(set(own) ^ set(reference)) / len(union) if union else 0.0
    if len(own) != len(reference):
        return float("inf")
    far = [abs(a - b) for a, b in zip(own, reference, strict=True)]
    return float("inf") if any(map(math.isnan, far)) else max(far, default=0.0)


def sample(path: Path, count: int) -> list[dict[str, Any]]:
    """``count`` users of a file of events, the same ones each time: window and local events at their newest event."""
    events: dict[str, dict[str, dict[str, Any]]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            events.setdefault(event["user_id"], {}).setdefault(event["event_id"], event)
    chosen = sorted(events, key=lambda user: sha256(user.encode()).digest())[:count]
    return [_case(user, list(events[user].values())) for user in chosen]


def _case(user: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The newest third, at most, is known to the device only; so every case has both a window and local events."""
    events.sort(key=lambda event: (event["at"], event["event_id"]))
    num_local = min(MAX_LOCAL, len(events) // 3 or (1 if len(events) > 1 else 0))
    cut = len(events) - num_local
    window = events[max(0, cut - MAX_WINDOW) : cut][::-1]
    keys = ("event_id", "item_id", "kind", "at")
    return {
        "user_id": user,
        "at": events[-1]["at"] + 1000,
        "window": [{key: event[key] for key in keys} for event in window],
        "local_events": events[cut:],
    }


def replay_file(layout: Layout, name: str | None) -> Path:
    """The events to sample from: of the named data set, or of the newest. Raises LauncherError."""
    folder = layout.state / "data"
    found = [folder / name / "replay.jsonl"] if name else sorted(folder.glob("*/replay.jsonl"), key=_made_at)
    if not found or not found[-1].is_file():
        raise LauncherError(f"no events to sample users from in {folder / (name or '*')}", "./beforehand data --small")
    return found[-1]


def _made_at(path: Path) -> float:
    return path.stat().st_mtime


def _current() -> str:
    row = looks.current(looks.releases())
    if row is None:
        raise LauncherError("no release is current", "./beforehand build, or --release ID")
    return str(row["id"])


def _ask(layout: Layout, room: str, folder: Path, release: str) -> Numbers:
    given, out = folder / CASES, folder / f"{room}.json"
    python = environments.ensure(layout, room)
    command = [str(python), "-P", "-m", *ROOMS[room], "--cases", str(given), "--release", release, "--out", str(out)]
    done = subprocess.run(
        command, cwd=layout.root, env=verb_environment(layout, room), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LauncherError(f"the {room} tier gave no numbers: {done.stderr.strip()[-500:]}", "run it by itself")
    return json.loads(out.read_text())


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./beforehand parity",
        description="Compare the numbers of all tiers for the same users.",
        epilog="example: ./beforehand parity --users 50 --json",
    )
    parser.add_argument(
        "--users", type=_positive, default=50, metavar="N", help="sampled, the same ones each time (50)"
    )
    parser.add_argument("--data", metavar="NAME", help="data set whose held-back events are used (the newest)")
    parser.add_argument("--release", metavar="ID", help="by default the current one")
    parser.add_argument("--json", action="store_true", help="one JSON object, last, on stdout")
    return parser
