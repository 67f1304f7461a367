"""One deadline per request, made where it enters, passed down, never made anew. It keeps the ledger's stages too."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds that only grow."""


class Trail:
    """Which stage ran from when to when, by the deadline's clock, and what is worth telling of the request."""

    __slots__ = ("_ended", "facts", "laps")

    def __init__(self) -> None:
        self.laps: list[tuple[str, float, float]] = []
        self.facts: dict[str, str | int | bool] = {}
        self._ended = float("-inf")

    def lap(self, stage: str, begun: float, ended: float) -> None:
        """One more stage, after those before it."""
        self.laps.append((stage, max(begun, self._ended), ended))
        self._ended = ended

    def divide(self, stage: str, part: str, part_s: float) -> None:
        """The first ``part_s`` of the last lap, which is ``stage``'s, were ``part``."""
        if self.laps and self.laps[-1][0] == stage:
            _, begun, ended = self.laps.pop()
            self.laps += [(part, begun, begun + part_s), (stage, begun + part_s, ended)]


class Deadline:
    """How long a request still has, and where its time went.

    >>> deadline = Deadline(0.050, clock=lambda: 7.0)
    >>> deadline.remaining()
    0.05
    """

    __slots__ = ("_begun", "_clock", "_lap", "budget_s", "stages_s", "trail")

    def __init__(self, budget_s: float, clock: Clock = time.monotonic, waited_s: float = 0.0) -> None:
        """``waited_s``: it came this long ago and could not be looked at before."""
        self._clock = clock
        self._begun = self._lap = clock() - waited_s
        self.budget_s = budget_s
        self.stages_s: dict[str, float] = {}
        self.trail: Trail | None = None
        """Only a request that is traced has one."""

    def grant(self, budget_s: float) -> None:
        """Take the budget that the request names; the time already spent still counts."""
        self.budget_s = budget_s

    def fork(self) -> Deadline:
        """For one request of a batch: it entered when the batch did, and keeps its own budget and stages."""
        twin = Deadline(self.budget_s, self._clock)
        twin._begun = self._begun
        twin._lap = self._lap
        twin.stages_s = dict(self.stages_s)
        if self.trail is not None:
            twin.trail = Trail()
        return twin

    def elapsed(self) -> float:
        """Seconds since the request entered."""
        return self._clock() - self._begun

    @property
    def begun(self) -> float:
        """When the request entered, by the clock."""
        return self._begun

    @property
    def now(self) -> float:
        """What the clock says."""
        return self._clock()

    @property
    def ends_at(self) -> float:
        """When nothing is left, by the clock."""
        return self._begun + self.budget_s

    def remaining(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.budget_s - self.elapsed())

    def expired(self) -> bool:
        """Nothing is left."""
        return self.elapsed() >= self.budget_s

    def mark(self, stage: str) -> None:
        """Book the time since the last mark to ``stage``: the stages add up to the whole."""
        now = self._clock()
        self.stages_s[stage] = self.stages_s.get(stage, 0.0) + now - self._lap
        if self.trail is not None:
            self.trail.lap(stage, self._lap, now)
        self._lap = now

    def note(self, stage: str, **facts: str | int | bool) -> None:
        """For the trail alone: the ledger books this time to the stage that follows."""
        if self.trail is not None:
            self.trail.lap(stage, self._lap, self._clock())
            self.trail.facts |= facts

    def split(self, stage: str, part: str, part_s: float) -> None:
        """Book ``part_s`` of what ``stage`` took to ``part`` instead."""
        part_s = min(part_s, self.stages_s.get(stage, 0.0))
        self.stages_s[stage] = self.stages_s.get(stage, 0.0) - part_s
        self.stages_s[part] = self.stages_s.get(part, 0.0) + part_s
        if self.trail is not None:
            self.trail.divide(stage, part, part_s)
