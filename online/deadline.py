"""One deadline per request, made where it enters, passed down, never made anew. It keeps the ledger's stages too."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds that only grow."""


class Deadline:
    """How long a request still has, and where its time went.

    >>> deadline = Deadline(0.050, clock=lambda: 7.0)
    >>> deadline.remaining()
    0.05
    """

    __slots__ = ("_begun", "_clock", "_lap", "budget_s", "stages_s")

    def __init__(self, budget_s: float, clock: Clock = time.monotonic, waited_s: float = 0.0) -> None:
        """``waited_s``: it came this long ago and could not be looked at before."""
        self._clock = clock
        self._begun = self._lap = clock() - waited_s
        self.budget_s = budget_s
        self.stages_s: dict[str, float] = {}

    def grant(self, budget_s: float) -> None:
        """Take the budget that the request names; the time already spent still counts."""
        self.budget_s = budget_s

    def fork(self) -> Deadline:
        """For one request of a batch: it entered when the batch did, and keeps its own budget and stages."""
        twin = Deadline(self.budget_s, self._clock)
        twin._begun = self._begun
        twin._lap = self._lap
        twin.stages_s = dict(self.stages_s)
        return twin

    def elapsed(self) -> float:
        """Seconds since the request entered."""
        return self._clock() - self._begun

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
        self._lap = now

    def split(self, stage: str, part: str, part_s: float) -> None:
        """Book ``part_s`` of what ``stage`` took to ``part`` instead."""
        part_s = min(part_s, self.stages_s.get(stage, 0.0))
        self.stages_s[stage] = self.stages_s.get(stage, 0.0) - part_s
        self.stages_s[part] = self.stages_s.get(part, 0.0) + part_s
