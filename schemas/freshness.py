"""How old is too old: one pure rule, used by every reader."""

from __future__ import annotations

import msgspec

from schemas.names import State


class Freshness(msgspec.Struct, frozen=True):
    """An asset's two ages, in seconds: fresh up to ``fresh_for``, used up to ``usable_for``."""

    fresh_for_s: float
    usable_for_s: float

    def judge(self, age_s: float) -> State:
        """FRESH, STALE or EXPIRED. An age below zero (clocks differ) counts as zero."""
        if age_s <= self.fresh_for_s:
            return State.FRESH
        return State.STALE if age_s <= self.usable_for_s else State.EXPIRED


def age_s(made_at_ms: int, now_ms: int) -> float:
    """Seconds since ``made_at_ms``, never negative."""
    return max(0, now_ms - made_at_ms) / 1000
