"""Watching the look-up service while a release is tried or has just become current. Standard library only.

What is judged is what the service itself counts: which release it serves, how many answers came late or were refused,
and whether the answers of the release come from rungs as good as those of the other releases.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from infra import scrape
from infra.errors import LauncherError
from infra.scrape import Samples

EVERY_S = 2.0
LOADED_WITHIN_S = 120.0
MAX_SILENT = 5
GOOD_RUNGS = ("generate", "nearline")


@dataclass(frozen=True)
class Bounds:
    """How much worse is too bad. Shares of the answers seen during the watch."""

    late: float = 0.01
    refused: float = 0.01
    worse_rungs: float = 0.1  # below the share of good rungs of the other releases
    min_answers: int = 100  # fewer say nothing


@dataclass
class Watch:
    """One watch of one release at one service; ``seen`` is filled as it goes on."""

    url: str
    release: str
    for_s: float
    canary: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    read: Callable[[str], Samples] = scrape.metrics
    ask: Callable[[str], Any] = scrape.json_of
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def run(self) -> dict[str, Any]:
        """What was seen; ``problem`` is empty when all was well. Ends at the first problem."""
        first = self.read(self.url)
        begun, silent, found = self.clock(), 0, {"problem": "", "answers": 0}
        while True:
            elapsed = self.clock() - begun
            try:
                found = judged(first, self.read(self.url), self.release, self.bounds)
                silent = 0
                found["problem"] = self._not_served(elapsed) or found["problem"]
            except LauncherError as error:
                silent += 1
                found["problem"] = error.what if silent > MAX_SILENT else ""
            if found["problem"] or elapsed >= self.for_s:
                return {**found, "release": self.release, "watched_s": round(elapsed, 1)}
            self.sleep(min(EVERY_S, max(0.0, self.for_s - elapsed)))

    def _not_served(self, elapsed: float) -> str:
        report = self.ask(f"{self.url.rstrip('/')}/v1/releases")
        if problem := report["problems"].get(self.release):
            return f"the service does not load it: {problem}"
        if self.canary or report["current"] == self.release:
            return ""
        late = elapsed > min(LOADED_WITHIN_S, self.for_s)
        return f"the service still serves {report['current']}" if late else ""


def judged(before: Samples, now: Samples, release: str, bounds: Bounds) -> dict[str, Any]:
    """The counts between two readings of ``/metrics``, and the first bound that does not hold."""
    answers = _grown(before, now, "beforehand_answers_total")
    own = _grown(before, now, "beforehand_answers_total", release=release)
    late = _grown(before, now, "beforehand_late_total")
    refused = sum(
        _grown(before, now, "beforehand_refused_total", status=status)
        for status in scrape.values(now, "beforehand_refused_total", "status")
        if status.startswith("5")
    )
    wrong = _grown(before, now, "beforehand_wrong_key_total")
    good = _good(before, now, release)
    others = _good_others(before, now, release)
    asked = answers + refused
    rules = [
        (wrong > 0, f"{wrong:.0f} values of another user than asked"),
        (asked >= bounds.min_answers and refused > bounds.refused * asked, f"{refused:.0f} of {asked:.0f} refused"),
        (answers >= bounds.min_answers and late > bounds.late * answers, f"{late:.0f} of {answers:.0f} answers late"),
        (
            good is not None
            and others is not None
            and own >= bounds.min_answers
            and good < others - bounds.worse_rungs,
            f"only {good or 0:.0%} from a good rung, {others or 0:.0%} of the others",
        ),
    ]
    return {
        "problem": next((said for broken, said in rules if broken), ""),
        "answers": int(answers),
        "of_the_release": int(own),
        "late": int(late),
        "refused": int(refused),
        "good_rungs": good,
        "good_rungs_before": others,
        "judged": bool(own >= bounds.min_answers),
    }


def _grown(before: Samples, now: Samples, name: str, **labels: str) -> float:
    """What a counter grew by; all of it when the service started anew meanwhile."""
    grown = scrape.total(now, name, **labels) - scrape.total(before, name, **labels)
    return grown if grown >= 0 else scrape.total(now, name, **labels)


def _good(before: Samples, now: Samples, release: str) -> float | None:
    """Share of a release's answers that came from a good rung; None without answers."""
    name = "beforehand_answers_total"
    count = _grown(before, now, name, release=release)
    good = sum(_grown(before, now, name, release=release, rung=rung) for rung in GOOD_RUNGS)
    return good / count if count else None


def _good_others(before: Samples, now: Samples, release: str) -> float | None:
    """The same of all that the other releases ever answered: what was usual before."""
    name = "beforehand_answers_total"
    others = [other for other in scrape.values(now, name, "release") if other != release]
    count = sum(scrape.total(now, name, release=other) for other in others)
    good = sum(scrape.total(now, name, release=other, rung=rung) for other in others for rung in GOOD_RUNGS)
    return good / count if count else None
