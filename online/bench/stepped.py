"""The service with a wall clock that can be stepped from outside: ``python -m online.bench.stepped serve …``.

SIGUSR1 steps it two days ahead, SIGUSR2 four days back. The machine's own clock is left alone.
"""

from __future__ import annotations

import signal
import time

from online.__main__ import main

DAY_NS = 24 * 3600 * 10**9
STEPS_NS = {signal.SIGUSR1: 2 * DAY_NS, signal.SIGUSR2: -4 * DAY_NS}


class Clock:
    """The machine's clock and what it was stepped by."""

    def __init__(self) -> None:
        self._real_ns = time.time_ns
        self._off_ns = 0

    def time_ns(self) -> int:
        """In the place of ``time.time_ns``."""
        return self._real_ns() + self._off_ns

    def time(self) -> float:
        """In the place of ``time.time``."""
        return self.time_ns() / 1e9

    def step(self, number: int, _frame: object) -> None:
        """A signal came."""
        self._off_ns += STEPS_NS[signal.Signals(number)]


if __name__ == "__main__":
    clock = Clock()
    time.time_ns, time.time = clock.time_ns, clock.time
    for each in STEPS_NS:
        signal.signal(each, clock.step)
    main()
