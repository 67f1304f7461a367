"""The own lane: heavy and valuable requests have a line and threads of their own, so neither side waits for the other.

What they still share is the processor: the plan's numbers of threads say how much of it a lane may take at most.
"""

from __future__ import annotations

from collections.abc import Callable

from online.decoder import Decoder
from schemas.api import RecallRequest
from schemas.plan_types import Online


class Lanes:
    """One decoder for each; the same one when the plan has no own lane."""

    def __init__(self, plan: Online, turn_s: Callable[[], float] = lambda: 0.0) -> None:
        self.small = Decoder(plan.workers, turn_s=turn_s)
        self.own = Decoder(plan.lane_workers, turn_s=turn_s) if plan.lane_workers else self.small
        self._heavy_k = plan.lane_k
        self._valuable = float("inf") if plan.lane_value is None else plan.lane_value

    @property
    def all(self) -> tuple[Decoder, ...]:
        """Each once."""
        return (self.small,) if self.own is self.small else (self.small, self.own)

    @property
    def in_flight(self) -> int:
        """Jobs that wait or run, of both."""
        return sum(lane.in_flight for lane in self.all)

    def of(self, request: RecallRequest, *, bulk: bool = False) -> Decoder:
        """Where it belongs. ``bulk``: it is one of many that were sent together."""
        apart = bulk or request.k >= self._heavy_k or request.value >= self._valuable
        return self.own if apart else self.small

    def close(self) -> None:
        """Let the running ones end; drop those who wait."""
        for lane in self.all:
            lane.close()
