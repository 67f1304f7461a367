"""Runs the decoder in a few threads, the most valuable jobs first, and stops what comes too late.

The event loop puts jobs into the ``Line``; each worker thread takes a batch, runs it and hands the outcomes back to the
loop in one call. Nothing else crosses the threads.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from online.batching import Curve
from online.deadline import Clock, Deadline
from online.graph import ORT_ERRORS, Array
from online.ladder import Usual
from online.line import Decoded, Job, Line, Run
from online.release import Release
from schemas.names import Reason

RESERVE_S, WAY_BACK = 0.001, 2
"""Kept back for the rung below and for writing the answer, and the turns of the event loop between the end of a run and
its answer: in one the outcome comes in, in the next the request goes on."""
PADDING = -1


class Decoder:
    """``workers`` threads, one run each; the event loop's thread never runs a graph. ``turn_s``: how long a turn of the
    loop may take now."""

    def __init__(self, workers: int, clock: Clock = time.monotonic, turn_s: Callable[[], float] = lambda: 0.0) -> None:
        self.curve = Curve()
        self._clock = clock
        self.turn_s = turn_s
        self._line = Line(self.curve, workers, clock)
        self._threads = [threading.Thread(target=self._work, name=f"decode-{n}", daemon=True) for n in range(workers)]
        self._started = False

    @property
    def usual(self) -> Usual:
        """What one job alone takes."""
        return self.curve.single

    @property
    def in_flight(self) -> int:
        """Jobs that wait or run."""
        return self._line.in_flight

    def room(self, value: float, deadline: Deadline) -> Reason:
        """OK, or NO_CAPACITY when those who go before it would use up its time."""
        return Reason.OK if self._line.room(value, deadline.ends_at - self._reserve_s()) else Reason.NO_CAPACITY

    async def decode(self, release: Release, feed: dict[str, Array], deadline: Deadline, value: float = 1.0) -> Decoded:
        """One job. Returns before the deadline whatever the graph does; a run that nobody waits for is stopped.

        NO_CAPACITY: more valuable jobs took the time. DECODE_TIMEOUT: it ran, or would have, past its deadline.
        NO_TIME: nobody is before it, and yet a run usually takes longer than is left.
        """
        loop = asyncio.get_running_loop()
        if not self._started:
            self._start()
        reserve_s = self._reserve_s()
        now, ends_at = self._clock(), deadline.ends_at - reserve_s
        if not self.in_flight and now + self.usual.s > ends_at:
            self.usual.skipped()  # else it would wait in vain, and nothing would ever be learnt
            return Decoded(Reason.NO_TIME)
        job = Job(release, feed, loop.create_future(), value=value, ends_at=ends_at, queued_at=now)
        timer = loop.call_later(max(0.0, deadline.remaining() - reserve_s), job.settle, Decoded(Reason.DECODE_TIMEOUT))
        for lost in self._line.add(job):
            lost.settle(Decoded(Reason.NO_CAPACITY))
        try:
            return await job.outcome
        finally:
            timer.cancel()
            self._line.leave(job)

    def close(self) -> None:
        """Let the running ones end; drop those who wait."""
        self._line.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _reserve_s(self) -> float:
        # While nobody is before it a long turn was a stall, and a stall says nothing.
        return RESERVE_S + (WAY_BACK * self.turn_s() if self.in_flight else 0.0)

    def _start(self) -> None:
        self._started = True
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (run := self._line.take()) is not None:
            outcomes = self._run(run)
            self._line.ended(run)
            with suppress(RuntimeError):  # the loop has ended, and with it those who asked
                run.jobs[0].outcome.get_loop().call_soon_threadsafe(self._deliver, run.jobs, outcomes)
            del run, outcomes  # a thread that waits must not keep a release that is unloaded meanwhile

    def _deliver(self, jobs: Sequence[Job], outcomes: Sequence[Decoded]) -> None:
        for job, outcome in zip(jobs, outcomes, strict=True):
            job.settle(outcome)
        for lost in self._line.give_up():  # or they would wait for their end, to hear that it has come
            lost.settle(Decoded(Reason.NO_CAPACITY))

    def _run(self, run: Run) -> list[Decoded]:
        count = len(run.jobs)
        if run.stop.called:
            return [Decoded(Reason.DECODE_TIMEOUT)] * count
        graph = run.jobs[0].release.decoder
        faults = graph.faults
        try:
            items, scores = graph.run(together([job.feed for job in run.jobs]), run.stop)[:2]
        except ORT_ERRORS:
            if not run.stop.called:
                self.curve.forget()
                return [Decoded(Reason.DECODE_FAILED)] * count
            self.curve.took(count, self._clock() - run.begun)
            return [Decoded(Reason.DECODE_TIMEOUT)] * count
        if graph.faults != faults:
            self.curve.forget()  # another session has taken over
        self.curve.took(count, self._clock() - run.begun)
        return [_decoded(items[n], scores[n], run.begun - job.queued_at, count) for n, job in enumerate(run.jobs)]


def together(feeds: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """One feed of several jobs; lists of different lengths are padded."""
    if len(feeds) == 1:
        return feeds[0]
    joined: dict[str, Array] = {}
    for name in feeds[0]:
        parts = [feed[name] for feed in feeds]
        if len({part.shape[1] for part in parts}) > 1:
            width = max(part.shape[1] for part in parts)
            parts = [np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=PADDING) for p in parts]
        joined[name] = np.concatenate(parts)
    return joined


def _decoded(items: Array, scores: Array, queue_s: float, batch_size: int) -> Decoded:
    filled = items >= 0
    items, scores = items[filled], scores[filled]
    if not np.isfinite(scores).all():
        return Decoded(Reason.NOT_FINITE)
    return Decoded(Reason.OK, items, scores, queue_s, batch_size)
