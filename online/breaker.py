"""A circuit breaker: a store that fails again and again is left alone for a while, then tried by one request."""

from __future__ import annotations

import time

from online.deadline import Clock

FAILURES = 5
SPAN_S = 0.1
"""One stall, of the store or of this process, fails all that is under way at once: that is no outage."""
PAUSE_S = 1.0


class Breaker:
    """Closed until ``failures`` in a row over ``SPAN_S``, then open for ``pause_s``, then half open: one probe decides.

    Every ``allows()`` that is true must be followed by ``succeeded``, ``failed`` or ``undecided``.
    """

    def __init__(self, clock: Clock = time.monotonic, failures: int = FAILURES, pause_s: float = PAUSE_S) -> None:
        self._clock = clock
        self._limit = failures
        self._pause_s = pause_s
        self._in_a_row = 0
        self._first_at = 0.0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def open(self) -> bool:
        """The store is left alone, or only probed."""
        return self._opened_at is not None

    def allows(self) -> bool:
        """May this request ask the store?"""
        if self._opened_at is None:
            return True
        if self._probing or self._clock() - self._opened_at < self._pause_s:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        """The store answered."""
        self._in_a_row = 0
        self._opened_at = None
        self._probing = False

    def failed(self) -> None:
        """The store refused, or had a fair time and did not answer."""
        now = self._clock()
        if not self._in_a_row:
            self._first_at = now
        self._in_a_row += 1
        self._probing = False
        lasting = self._in_a_row >= self._limit and now - self._first_at >= SPAN_S
        if self._opened_at is not None or lasting:
            self._opened_at = now

    def undecided(self) -> None:
        """The request gave up too early to tell."""
        self._probing = False
