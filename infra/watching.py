"""Watching the look-up service while a release is tried or has just become current. Standard library only.

What is judged is what the service itself counts: which release it serves, how many answers came late or were refused,
and whether the answers of the release come from rungs as good, and are as seldom late, as those of the other releases:
for a canary those of the same minutes, for a release that has just become current those from before.
A refusal has no release: nothing is known of the user yet.
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
ANSWERS, LATE = "beforehand_answers_total", "beforehand_late_by_release_total"


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
        """What was seen; ``problem`` is empty when all was well. Ends at the first problem, and not before the service
        serves the release, or has had its time to load it: a watch that never saw it says nothing.
        """
        first = self.read(self.url)
        begun, silent, found = self.clock(), 0, {"problem": "", "answers": 0}
        served = self.canary  # one that is tried for moments only may not have been loaded yet: nothing to judge then
        while True:
            elapsed = self.clock() - begun
            try:
                found = judged(first, self.read(self.url), self.release, self.bounds, beside=self.canary)
                serves, trouble = self._serves(elapsed)
                silent = 0  # both have answered
                served = self.canary or serves
                found["problem"] = trouble or found["problem"]
            except LauncherError as error:
                silent += 1
                found["problem"] = error.what if silent > MAX_SILENT else ""
            if found["problem"] or (elapsed >= self.for_s and served):
                return {**found, "release": self.release, "watched_s": round(elapsed, 1)}
            left_s = self.for_s - elapsed
            self.sleep(min(EVERY_S, left_s) if left_s > 0 else EVERY_S)

    def _serves(self, elapsed: float) -> tuple[bool, str]:
        """Whether the service serves the release, and what is wrong when it should by now."""
        report = self.ask(f"{self.url.rstrip('/')}/v1/releases")
        if problem := report["problems"].get(self.release):
            return False, f"the service does not load it: {problem}"
        if report["current"] == self.release or (self.canary and report.get("canary") == self.release):
            return True, ""
        serves = "serves only" if self.canary else "still serves"
        return False, f"the service {serves} {report['current']}" if elapsed >= LOADED_WITHIN_S else ""


def judged(before: Samples, now: Samples, release: str, bounds: Bounds, *, beside: bool = False) -> dict[str, Any]:
    """The counts between two readings of ``/metrics``, and the first bound that does not hold.

    ``beside``: compare with what the other releases answered meanwhile, if that is enough, not with all they ever did.
    """
    answers = _grown(before, now, ANSWERS)
    late = _grown(before, now, "beforehand_late_total")
    refused = sum(
        _grown(before, now, "beforehand_refused_total", status=status)
        for status in scrape.values(now, "beforehand_refused_total", "status")
        if status.startswith("5")
    )
    wrong = _grown(before, now, "beforehand_wrong_key_total")
    own = _seen(before, now, {release})
    rest = scrape.values(now, ANSWERS, "release") - {release}
    others = _seen(before, now, rest) if beside else None
    if others is None or others.answers < bounds.min_answers:
        others = _seen({}, now, rest)
    asked = answers + refused
    enough = own.answers >= bounds.min_answers
    comparable = enough and others.answers >= bounds.min_answers
    rules = [
        (wrong > 0, f"{wrong:.0f} values of another user than asked"),
        (asked >= bounds.min_answers and refused > bounds.refused * asked, f"{refused:.0f} of {asked:.0f} refused"),
        (answers >= bounds.min_answers and late > bounds.late * answers, f"{late:.0f} of {answers:.0f} answers late"),
        (
            comparable and own.late > others.late + bounds.late,
            f"{own.late:.1%} of its answers late, {others.late:.1%} of the others'",
        ),
        (
            comparable and own.good < others.good - bounds.worse_rungs,
            f"only {own.good:.0%} from a good rung, {others.good:.0%} of the others",
        ),
    ]
    return {
        "problem": next((said for broken, said in rules if broken), ""),
        "answers": int(answers),
        "of_the_release": int(own.answers),
        "late": int(late),
        "refused": int(refused),
        "good_rungs": own.good if own.answers else None,
        "good_rungs_before": others.good if others.answers else None,
        "by_release": {"own": own.told(), "others": others.told()},
        "judged": enough,
    }


@dataclass(frozen=True)
class Seen:
    """What some releases answered; ``late`` and ``good`` are shares, ``rungs`` counts."""

    answers: float
    late: float
    rungs: dict[str, float]

    @property
    def good(self) -> float:
        """The share from a good rung."""
        return sum(self.rungs.get(rung, 0.0) for rung in GOOD_RUNGS) / self.answers if self.answers else 0.0

    def told(self) -> dict[str, Any]:
        """For the JSON."""
        return {"answers": int(self.answers), "late": self.late, "rungs": {k: int(v) for k, v in self.rungs.items()}}


def _seen(before: Samples, now: Samples, releases: set[str]) -> Seen:
    rungs = {
        rung: sum(_grown(before, now, ANSWERS, release=release, rung=rung) for release in releases)
        for rung in sorted(scrape.values(now, ANSWERS, "rung"))
    }
    late = sum(_grown(before, now, LATE, release=release) for release in releases)
    answers = sum(rungs.values())
    return Seen(answers, late / answers if answers else 0.0, {rung: count for rung, count in rungs.items() if count})


def _grown(before: Samples, now: Samples, name: str, **labels: str) -> float:
    """What a counter grew by; all of it when the service started anew meanwhile."""
    grown = scrape.total(now, name, **labels) - scrape.total(before, name, **labels)
    return grown if grown >= 0 else scrape.total(now, name, **labels)
