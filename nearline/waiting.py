"""Waiting until what was published has become visible."""

from __future__ import annotations

import time
from collections.abc import Mapping

from nearline.visibility import Watch
from schemas.cli import bar
from schemas.errors import StoreError
from schemas.plan import Plan

STUCK_S = 120.0
"""Without progress for this long the wait is given up; a stream job that starts takes a while."""
STILL_AT_MOST_S = 30.0
LOOK_EVERY_S = 0.25


def wait_idle(newest: Mapping[str, int], watch: Watch, plan: Plan) -> float:
    """Wait until every user's state has reached ``newest`` (user → event time, ms) and then is still.

    The stillness is for what a watermark does not show: the later ones of several events at the same time, and events
    older than the newest. Where other users' events never let it be still, half a minute is taken for enough.
    Events too far ahead of the clock are dead letters by the plan and are not waited for.

    Returns:
        How long it took, in seconds.

    Raises:
        StoreError: no progress for two minutes, naming a user who waits; or Redis does not answer.
    """
    begun = time.monotonic()
    future_ms = (time.time() + plan.nearline.max_future) * 1000
    _wait_for_watermarks({user: at for user, at in newest.items() if at <= future_ms}, watch)
    still_s = max(1.0, 3 * plan.nearline.refresh)
    enough_at = time.monotonic() + STILL_AT_MOST_S
    while time.monotonic() < min(watch.changed_at + still_s, enough_at):
        time.sleep(LOOK_EVERY_S)
    return round(time.monotonic() - begun, 3)


def _wait_for_watermarks(behind: dict[str, int], watch: Watch) -> None:
    moved_at, reached = time.monotonic(), -1
    with bar() as progress:
        task = progress.add_task("states up to date", total=len(behind))
        while behind:
            found = watch.read(behind)
            left = {user: at for user, at in behind.items() if found.get(user, -1) < at}
            progress.advance(task, len(behind) - len(left))
            now_reached = sum(found.values())
            if len(left) < len(behind) or now_reached != reached:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > STUCK_S:
                raise StoreError(
                    f"{len(left)} users' states stay behind their newest event",
                    where="--wait-idle",
                    value=next(iter(left)),
                    mend="See that the stream job and a worker run, and what is in the dead-letter topic.",
                )
            behind, reached = left, now_reached
            time.sleep(LOOK_EVERY_S)
