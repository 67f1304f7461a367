"""Runs the decoder in a few threads, with a bounded queue, and stops what comes too late."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from online.deadline import Clock, Deadline
from online.graph import ORT_ERRORS, Array, Stop
from online.ladder import Usual
from online.release import Release
from schemas.names import Reason

MAX_WAITING = 64
RESERVE_S = 0.001
"""Kept back for the rung below and for writing the answer."""


def _none() -> Array:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Items (numbers, best first, padding removed) and scores, or the reason why there are none."""

    reason: Reason
    items: Array = field(default_factory=_none)
    scores: Array = field(default_factory=_none)
    queue_s: float = 0.0


class Decoder:
    """``workers`` threads, one run each; the event loop's thread never runs a graph."""

    def __init__(self, workers: int, clock: Clock = time.monotonic) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
        self._workers = workers
        self._clock = clock
        self.usual = Usual()
        self.in_flight = 0

    def room(self, remaining_s: float) -> Reason:
        """OK, or NO_CAPACITY when the queue is full or those who wait would use up the time."""
        waiting = max(0, self.in_flight - self._workers + 1)
        if waiting > MAX_WAITING:
            return Reason.NO_CAPACITY
        in_time = self.usual.s * (1 + waiting / self._workers) <= remaining_s
        return Reason.OK if in_time or not waiting else Reason.NO_CAPACITY

    async def decode(self, release: Release, feed: dict[str, Array], deadline: Deadline) -> Decoded:
        """One run. Returns before the deadline whatever the graph does; a run past it is stopped."""
        stop = Stop()
        self.in_flight += 1
        queued_at = self._clock()
        work = asyncio.get_running_loop().run_in_executor(
            self._pool, self._run, release, feed, deadline, stop, queued_at
        )
        work.add_done_callback(self._done)
        try:
            await asyncio.wait({work}, timeout=max(0.0, deadline.remaining() - RESERVE_S))
        finally:
            if not work.done():
                stop()
        return work.result() if work.done() else Decoded(Reason.DECODE_TIMEOUT)

    def close(self) -> None:
        """Let the running ones end; drop those who wait."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _done(self, _: object) -> None:
        self.in_flight -= 1

    def _run(
        self, release: Release, feed: dict[str, Array], deadline: Deadline, stop: Stop, queued_at: float
    ) -> Decoded:
        begun = self._clock()
        if stop.called or deadline.expired():
            return Decoded(Reason.DECODE_TIMEOUT)
        try:
            items, scores = release.decoder.run(feed, stop)[:2]
        except ORT_ERRORS:
            if not stop.called:
                return Decoded(Reason.DECODE_FAILED)
            self.usual.took(self._clock() - begun)
            return Decoded(Reason.DECODE_TIMEOUT)
        self.usual.took(self._clock() - begun)
        filled = items[0] >= 0
        items, scores = items[0][filled], scores[0][filled]
        if not np.isfinite(scores).all():
            return Decoded(Reason.NOT_FINITE)
        return Decoded(Reason.OK, items, scores, begun - queued_at)
