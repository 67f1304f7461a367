"""Which rungs to try, in which order, and why the others are skipped. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.names import Reason, Rung

WEIGHT = 0.05
EASE = 0.99


class Usual:
    """A running estimate of how long something takes, seconds, and of how far from it the single time is."""

    def __init__(self, first_s: float = 0.0) -> None:
        self.s = first_s
        self.deviation_s = 0.0

    @property
    def safe_s(self) -> float:
        """What it seldom exceeds."""
        return self.s + 2 * self.deviation_s

    def took(self, seconds: float) -> None:
        """One more measurement."""
        off = seconds - self.s
        self.s += WEIGHT * off
        self.deviation_s += WEIGHT * (abs(off) - self.deviation_s)

    def skipped(self) -> None:
        """It was thought too slow to try. Ease the estimate: one bad spell must not rule it out for good."""
        self.s *= EASE
        self.deviation_s *= EASE


def choose(
    ladder: Sequence[Rung], ready: Mapping[Rung, Reason], usual_s: Mapping[Rung, float], remaining_s: float
) -> tuple[list[Rung], dict[Rung, Reason]]:
    """The rungs to try, best first, and a reason for every rung left out.

    A rung is left out when it is not ready or when its usual time exceeds what remains. The last ready rung is
    always kept: a late answer is better than none, and it is the cheapest one.
    """
    skipped = {rung: ready[rung] for rung in ladder if ready[rung] is not Reason.OK}
    able = [rung for rung in ladder if rung not in skipped]
    order: list[Rung] = []
    for rung in able:
        if usual_s.get(rung, 0.0) > remaining_s and rung is not able[-1]:
            skipped[rung] = Reason.NO_TIME
        else:
            order.append(rung)
    return order, skipped
