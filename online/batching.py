"""Who decodes next and with whom, and who can't be in time. Pure: numbers in, choices out.

Jobs stand in order: the more valuable first, then the one whose deadline comes first, then the first to come. A free
worker takes the first job that can still be in time and as many companions as the learned cost curve allows.
Nobody waits for company.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from online.ladder import Usual

MAX_BATCH = 4
"""Beyond it a run takes almost as much longer as it has more members."""


class Waiting(Protocol):
    """What the choice needs to know of a job."""

    @property
    def ends_at(self) -> float:
        """When its answer must be there, seconds of the decoder's clock."""
        ...

    @property
    def release_id(self) -> str:
        """Only jobs of one release run together."""
        ...


class Curve:
    """What a run of 1 … ``MAX_BATCH`` jobs takes, seconds, learnt while running.

    A size that was never run is taken to cost as many single runs. Until a single run was seen, first or after a
    fault, jobs run alone.
    """

    def __init__(self, max_batch: int = MAX_BATCH) -> None:
        self._usual = [Usual() for _ in range(max_batch)]
        self._seen = [0] * max_batch

    @property
    def single(self) -> Usual:
        """Of one job."""
        return self._usual[0]

    def took(self, size: int, seconds: float) -> None:
        """One more run."""
        usual = self._usual[size - 1]
        if size > 1 and not self._seen[size - 1]:
            usual.s, usual.deviation_s = seconds, 0.0
        else:
            usual.took(seconds)
        self._seen[size - 1] += 1

    def forget(self) -> None:
        """After a fault: what was learnt may no longer hold. The single run's time stays as a first guess."""
        self._seen = [0] * len(self._seen)

    def of(self, size: int) -> float:
        """What a run of ``size`` may take: the usual time and twice its deviation. It never falls with the size."""
        return max(self._guess(n) for n in range(1, size + 1))

    def size(self) -> int:
        """The largest size that costs no more per job than a smaller one."""
        best = 1
        if self._seen[0]:
            for n in range(2, len(self._usual) + 1):
                if self.of(n) / n <= self.of(best) / best:
                    best = n
        return best

    def _guess(self, size: int) -> float:
        if size > 1 and not self._seen[size - 1]:
            return size * self._usual[0].safe_s
        return self._usual[size - 1].safe_s


def batch(waiting: Sequence[Waiting], now: float, curve: Curve) -> list[int]:
    """The positions of those that run now: the first that can be in time, then each that makes no member late."""
    chosen: list[int] = []
    size, ends_at = curve.size(), float("inf")
    for position, job in enumerate(waiting):
        if len(chosen) == size:
            break
        if chosen and job.release_id != waiting[chosen[0]].release_id:
            continue
        if now + curve.of(len(chosen) + 1) <= min(ends_at, job.ends_at):
            chosen.append(position)
            ends_at = min(ends_at, job.ends_at)
    return chosen


def hopeless(waiting: Sequence[Waiting], free_at: float, curve: Curve, workers: int, limit: int) -> list[int]:
    """The positions of those that can't be in time behind those before them, and of those past ``limit``.

    ``free_at`` is when a worker is expected to be free. Who is given up takes no place.
    """
    lost: list[int] = []
    kept = 0
    for position, job in enumerate(waiting):
        if kept < limit and finish(kept, free_at, curve, workers) <= job.ends_at:
            kept += 1
        else:
            lost.append(position)
    return lost


def finish(ahead: int, free_at: float, curve: Curve, workers: int) -> float:
    """When a job with ``ahead`` before it is expected to be done."""
    size = curve.size()
    rounds, place = divmod(ahead, size * workers)
    return free_at + rounds * curve.of(size) + curve.of(place // workers + 1)
