"""The line of jobs before the decode threads: ordered, bounded, shared by the loop and the workers.

Ordered by deadline as long as everybody can be in time: then it costs nobody anything, and those that are worth little
don't wait behind all others in every small crowd. When somebody can't be, by value, until ``PRESSED_S`` after the last
time that was so.
"""

from __future__ import annotations

import asyncio
import bisect
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from online.batching import Curve, all_in_time, batch, finish, hopeless
from online.deadline import Clock
from online.graph import Array, Stop
from online.release import Release
from schemas.names import Reason

MAX_WAITING = 64
PRESSED_S = 0.5


def _none() -> Array:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Items (numbers, best first, padding removed) and scores, or the reason why there are none."""

    reason: Reason
    items: Array = field(default_factory=_none)
    scores: Array = field(default_factory=_none)
    queue_s: float = 0.0
    batch_size: int = 0  # jobs that ran together


class Job:
    """One request's decode. ``outcome`` belongs to the event loop and is settled there, once."""

    __slots__ = ("ends_at", "feed", "outcome", "queued_at", "release", "run", "value")

    def __init__(
        self,
        release: Release,
        feed: dict[str, Array],
        outcome: asyncio.Future[Decoded],
        *,
        value: float,
        ends_at: float,
        queued_at: float,
    ) -> None:
        self.release = release
        self.feed = feed
        self.value = value
        self.ends_at = ends_at
        self.queued_at = queued_at
        self.outcome = outcome
        self.run: Run | None = None

    @property
    def release_id(self) -> str:
        """Only jobs of one release run together."""
        return self.release.id

    @property
    def rank(self) -> tuple[float, float, float]:
        """Its place in the line when there is too much to do: by value, then by deadline, then by arrival."""
        return (-self.value, self.ends_at, self.queued_at)

    def settle(self, decoded: Decoded) -> None:
        """Say what became of it; the first word counts."""
        if not self.outcome.done():
            self.outcome.set_result(decoded)


class Run:
    """Jobs that run together; it is stopped when the last of them has left."""

    __slots__ = ("begun", "jobs", "stop")

    def __init__(self, jobs: Sequence[Job], begun: float) -> None:
        self.jobs = jobs
        self.begun = begun
        self.stop = Stop()


class Line:
    """Thread-safe. The loop calls ``add``, ``give_up``, ``room``, ``leave``, the workers ``take`` and ``ended``."""

    def __init__(self, curve: Curve, workers: int, clock: Clock) -> None:
        self._curve = curve
        self._workers = workers
        self._clock = clock
        self._waiting: list[Job] = []
        self._running: list[Run] = []
        self._changed = threading.Condition()
        self._closed = False
        self._pressed_until = float("-inf")

    @property
    def in_flight(self) -> int:
        """Jobs that wait or run."""
        return len(self._waiting) + sum(len(run.jobs) for run in self._running)

    def room(self, value: float, ends_at: float) -> bool:
        """Would a job of this value be in time? Before an empty line: yes, for what a run takes is judged elsewhere."""
        with self._changed:
            now = self._clock()
            ahead = bisect.bisect(self._waiting, (-value, ends_at), key=_rank)
            if not ahead and len(self._running) < self._workers:
                return True
            if now >= self._pressed_until and self._fits([*self._waiting_ends(), ends_at], now):
                return True
            return ahead < MAX_WAITING and finish(ahead, self._free_at(now), self._curve, self._workers) <= ends_at

    def add(self, job: Job) -> list[Job]:
        """Let it in. Returns those that have lost their chance, which may be itself: they are out of the line."""
        with self._changed:
            bisect.insort(self._waiting, job, key=lambda each: each.rank)
            lost = self._give_up()
            self._changed.notify()
            return lost

    def give_up(self) -> list[Job]:
        """Those that have lost their chance since: they are out of the line."""
        with self._changed:
            return self._give_up()

    def _give_up(self) -> list[Job]:
        now = self._clock()
        crowd = len(self._waiting) > 1 or len(self._running) >= self._workers
        if not self._waiting or not crowd or not self._pressed(now):
            return []
        gone = hopeless(self._waiting, self._free_at(now), self._curve, self._workers, MAX_WAITING)
        return [self._waiting.pop(position) for position in reversed(gone)]

    def leave(self, job: Job) -> None:
        """It waits no longer, for whatever reason. Its run is stopped if nobody else waits for it."""
        with self._changed:
            if job.run is None:
                if job in self._waiting:
                    self._waiting.remove(job)
            elif job.run in self._running and all(each.outcome.done() for each in job.run.jobs):
                job.run.stop()
            job.run = None  # else each would keep the other until the garbage collector stops all threads to look

    def take(self) -> Run | None:
        """Wait for jobs and take the next batch; None when the line is closed."""
        with self._changed:
            while not self._closed:
                if run := self.choose():
                    return run
                self._changed.wait()
            return None

    def choose(self) -> Run | None:
        """The next batch if there is one now. Only who holds the line may call it."""
        now = self._clock()
        order = self._waiting if now < self._pressed_until else sorted(self._waiting, key=_deadline)
        chosen = [order[n] for n in batch(order, now, self._curve) or self._daring(order, now)]
        if not chosen:
            return None
        run = Run(chosen, now)
        for job in chosen:
            self._waiting.remove(job)
            job.run = run
        self._running.append(run)
        return run

    def ended(self, run: Run) -> None:
        """The worker is done with it."""
        with self._changed:
            self._running.remove(run)

    def close(self) -> None:
        """Take nothing more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _daring(self, order: Sequence[Job], now: float) -> list[int]:
        """The curve allows for bad luck; one that would be in time without is still tried, or nothing is learnt."""
        usual_s = self._curve.single.s
        return [n for n, job in enumerate(order) if now + usual_s <= job.ends_at][:1]

    def _pressed(self, now: float) -> bool:
        """There is, or just was, more to do than can be done in time."""
        if not self._fits(self._waiting_ends(), now):
            self._pressed_until = now + PRESSED_S
        return now < self._pressed_until

    def _waiting_ends(self) -> list[float]:
        return [job.ends_at for job in self._waiting]

    def _fits(self, ends_at: list[float], now: float) -> bool:
        """So many jobs may wait, and each can be in time."""
        few = len(ends_at) <= MAX_WAITING
        return few and all_in_time(sorted(ends_at), self._free_at(now), self._curve, self._workers)

    def _free_at(self, now: float) -> float:
        """When a worker is expected to be free."""
        if len(self._running) < self._workers:
            return now
        return max(now, min(run.begun + self._curve.of(len(run.jobs)) for run in self._running))


def _rank(job: Job) -> tuple[float, float]:
    return (-job.value, job.ends_at)


def _deadline(job: Job) -> tuple[float, float]:
    return (job.ends_at, job.queued_at)
