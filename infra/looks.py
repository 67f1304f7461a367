"""The looks of `./beforehand quality`, each put together from what the rooms' own verbs tell. Standard library only.

Each returns what it saw, with `problem`: empty, or what is not well in one sentence.
"""

from __future__ import annotations

import os
import time
from typing import Any

from infra import scrape
from infra.errors import LauncherError
from infra.verb_runner import run_verb

LESS_IS_BETTER = ("calibration_error",)
WORKER = "BEFOREHAND_WORKER_METRICS"
Found = dict[str, Any]


def plan() -> dict[str, Any]:
    """The plan as the contracts read it."""
    return run_verb("plan", "check", quiet=True)["plan"]


def releases() -> list[dict[str, Any]]:
    """Every release, newest first."""
    return run_verb("release", "list", quiet=True)["releases"]


def current(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The one that serves."""
    return next((row for row in rows if row["status"] == "current"), None)


def is_tried(release: str) -> bool:
    """Whether some users are served by it: a canary."""
    return run_verb("release", "list", quiet=True)["pointer"]["canary"] == release


def freshness(now: float | None = None) -> Found:
    """The age of the current release against each offline asset's `fresh_for` and `usable_for`."""
    row = current(releases())
    if row is None:
        return {"problem": "no release is current", "assets": {}}
    age_s = max(0.0, (now or time.time()) - row["made_at"] / 1000)
    assets = {name: asset for name, asset in plan()["assets"].items() if asset["tier"] == "offline"}
    states = {name: state_of(age_s, asset) for name, asset in assets.items()}
    old = [f"{name} is {state}" for name, state in states.items() if state != "FRESH"]
    return {"problem": ", ".join(old), "release": row["id"], "age_s": round(age_s), "assets": states}


def state_of(age_s: float, asset: dict[str, Any]) -> str:
    """FRESH, STALE or EXPIRED, as `schemas.freshness` judges."""
    if age_s <= asset["fresh_for"]:
        return "FRESH"
    return "STALE" if age_s <= asset["usable_for"] else "EXPIRED"


def dead_letters() -> Found:
    """The share of bad records against half of what stops the job."""
    told = run_verb("stream", "status", quiet=True)
    share, most = told.get("bad_share"), plan()["nearline"]["max_bad_share"] / 2
    problem = "" if told["state"] == "RUNNING" else f"the windows job is {told['state']}"
    if share is not None and share > most:
        problem = f"{share:.1%} of the last minute's records are dead letters; the job stops itself at {2 * most:.0%}"
    kept = {name: told.get(name) for name in ("state", "records", "dead_letters", "bad_share", "lag_records")}
    return {"problem": problem, **kept}


def drift(most: float, rest_h: float) -> Found:
    """Whether a new release is due before its time: `drifted`.

    Measured by the worker: events of a user's window whose items the release does not know. A release younger than
    `rest_h` hours is left to rest, or a catalogue that changes all day would be built all day.
    """
    row = current(releases())
    age_h = (time.time() - row["made_at"] / 1000) / 3600 if row else None
    unknown = unknown_events()
    drifted = unknown is not None and unknown > most and age_h is not None and age_h >= rest_h
    if unknown is None:
        raise LauncherError(
            f"no worker tells its metrics ({WORKER})", f"./beforehand worker --metrics-port P, set {WORKER}"
        )
    return {"problem": "", "drifted": drifted, "unknown_events": round(unknown, 3), "age_h": age_h}


def unknown_events() -> float | None:
    """Mean number of unknown items' events in a window, since the worker started; None without a worker."""
    url = os.environ.get(WORKER)
    if not url:
        return None
    found = scrape.metrics(url)
    states = scrape.total(found, "beforehand_worker_states_total")
    return scrape.total(found, "beforehand_worker_unknown_items_total") / states if states else 0.0


def gate(release: str) -> Found:
    """The metrics of a release that the plan's gate names, against its shares of the current one's."""
    rows = releases()
    new, old = next((row for row in rows if row["id"] == release), None), current(rows)
    if new is None:
        raise LauncherError(f"there is no release {release}", "./beforehand release list")
    before = {} if old is None or old["id"] == release else old["metrics"]
    judged = {
        name: {"reached": new["metrics"].get(name), "needed": _needed(name, share, before[name])}
        for name, share in plan()["gate"].items()
        if name in before
    }
    low = [
        f"{name} is {one['reached']}, {one['needed']:.4f} is needed"
        for name, one in judged.items()
        if _low(name, **one)
    ]
    return {"problem": f"the plan's gate: {'; '.join(low)}" if low else "", "release": release, "metrics": judged}


def _needed(name: str, share: float, before: float) -> float:
    """As `offline.build.gate` has it."""
    if name not in LESS_IS_BETTER:
        return share * before
    return before / share if share else float("inf")


def _low(name: str, reached: float | None, needed: float) -> bool:
    if reached is None:
        return True
    return reached > needed if name in LESS_IS_BETTER else reached < needed


def canary(release: str, share: float) -> Found:
    """Let `share` of the users try it. The first release of all needs no canary, nor does the current one."""
    row = current(releases())
    if row is None or row["id"] == release:
        return {"problem": "", "release": release, "tried": False}
    why = "the DAG promote tries it"
    run_verb("release", "canary", release, "--share", f"{share:g}", "--why", why, quiet=True)
    return {"problem": "", "release": release, "tried": True, "share": share}


def undo(release: str, why: str) -> Found:
    """If it is current or tried: back to what served before, and mark it bad. Otherwise nothing."""
    row = current(releases())
    back = None
    if row is not None and row["id"] == release:
        back = run_verb("release", "rollback", release, "--why", why, quiet=True)["release"]
    elif not is_tried(release):
        return {"problem": "", "release": release, "changed": False}
    run_verb("release", "bad", release, "--why", why, quiet=True)
    return {"problem": "", "release": release, "changed": True, "back_to": back}
