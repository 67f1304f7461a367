"""Is there time for the whole way? Under overload the event loop itself is the queue: the door sheds before work."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right, insort
from collections import deque

from online.deadline import Clock

TURNS = 4
"""Turns of the loop that the way through store and decoder takes: a request waits for each."""
KEPT = 5
"""Turns whose median counts: one stall of the machine is not overload, three in five are."""
STALE_S = 0.1
"""A turn that was measured this long ago says nothing about now."""
REMEMBERED = 512
LEAST_SHARE = 0.25
GOLDEN = 0.618034
"""Its multiples fill the unit interval evenly, however many there are."""


class Turns:
    """How long a turn of the event loop takes, measured while requests come: idle, it costs nothing."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._under_way = False
        self._took_s = deque([0.0] * KEPT, KEPT)
        self._ordered_s = [0.0] * KEPT
        self._measured_at = float("-inf")

    @property
    def s(self) -> float:
        """The median of the last few; 0 when no measurement is recent."""
        return self._ordered_s[KEPT // 2] if self._recent else 0.0

    @property
    def longest_s(self) -> float:
        """Of the last few, for who must be sure; 0 when no measurement is recent."""
        return self._ordered_s[-1] if self._recent else 0.0

    @property
    def _recent(self) -> bool:
        return self._clock() - self._measured_at < STALE_S

    def measure(self) -> None:
        """Time the turn that starts here, unless that is being done."""
        if not self._under_way:
            self._under_way = True
            asyncio.get_running_loop().call_soon(self._turned, self._clock())

    def _turned(self, begun: float) -> None:
        self._under_way = False
        now = self._clock()
        self.took(now - begun)

    def took(self, seconds: float) -> None:
        """One more measurement."""
        now = self._clock()
        if now - self._measured_at >= STALE_S:
            self._took_s.extend([0.0] * KEPT)
        self._took_s.append(seconds)
        self._ordered_s = sorted(self._took_s)
        self._measured_at = now


class Ranks:
    """Where a value stands among those of the last requests; equals are spread evenly, or all would be shed at once."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._recent: deque[float] = deque()
        self._ordered: list[float] = []
        self._size = size
        self._spread = 0.0

    def rank(self, value: float) -> float:
        """Between the shares of the last requests that are worth less, and at most as much; then it is remembered."""
        below, upto = bisect_left(self._ordered, value), bisect_right(self._ordered, value)
        self._spread = (self._spread + GOLDEN) % 1.0
        rank = (below + (upto - below) * self._spread) / len(self._ordered) if self._ordered else 1.0
        if len(self._recent) == self._size:
            self._ordered.pop(bisect_left(self._ordered, self._recent.popleft()))
        self._recent.append(value)
        insort(self._ordered, value)
        return rank


class Door:
    """Admission, before any work is done for a request. ``store_timeout_s``: a look-up that takes longer is in vain, so
    the turns may not take longer either.

    A door that is shut still learns: those that it turns away time the loop's turns as well.
    """

    def __init__(self, clock: Clock = time.monotonic, store_timeout_s: float = float("inf")) -> None:
        self.turns = Turns(clock)
        self._ranks = Ranks()
        self._most_s = store_timeout_s

    def enter(self) -> float:
        """A request is first looked at. Returns for how long, as a turn takes, it has waited to be; seconds."""
        waited_s = self.turns.s
        self.turns.measure()
        return waited_s

    def admits(self, value: float, remaining_s: float) -> bool:
        """Is there time for ``TURNS`` turns, and for the look-up's? The less a request is worth, the less of its time
        it may count on.

        So that as turns get longer the least valuable are shed first and the loop stays quick for the others.
        """
        share = LEAST_SHARE + (1 - LEAST_SHARE) * self._ranks.rank(value)
        return TURNS * self.turns.s <= share * min(remaining_s, self._most_s)
