"""Tries until it works: what a store or a broker refuses now it may take in a moment."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Flag
from typing import TypeVar

from schemas.cli import say
from schemas.errors import BeforehandError

T = TypeVar("T")


class Patience:
    """Call it with what is to be done. Only ``mended`` is worth another try; pauses grow from ``first_pause_s`` to
    ``longest_pause_s``, and end when ``stop`` is set."""

    def __init__(self, stop: Flag, mended: type[BeforehandError], first_pause_s: float, longest_pause_s: float) -> None:
        self._stop, self._mended = stop, mended
        self._first_pause_s, self._longest_pause_s = first_pause_s, longest_pause_s

    def __call__(self, act: Callable[[], T], tries: int | None = None) -> T | None:
        """Try until it works, ever less often; None when told to stop, or after ``tries``. Says once what is wrong."""
        tried, pause_s = 0, self._first_pause_s
        while True:
            try:
                result = act()
            except self._mended as error:
                tried += 1
                if tried == 1:
                    say(f"{error} Nothing is lost; trying again.")
                if tried == tries or self._stop.wait(pause_s):
                    return None
                pause_s = min(self._longest_pause_s, 2 * pause_s)
            else:
                if tried:
                    say("it works again")
                return result
