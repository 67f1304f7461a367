"""Who decodes next and with whom, and who can't be in time. Pure: numbers in, choices out.

Jobs stand in order: while all of them can be in time the one whose deadline comes first; when there is too much to do,
the more valuable first. A free worker takes the first job that can still be in time and as many companions as the
learned cost curve allows. Nobody waits for company.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

from online.ladder import Usual

MAX_BATCH = 4
"""Beyond it a run takes almost as much longer as it has more members."""
PAUSE, LONGEST_PAUSE = 500, 16_000
"""Runs after which a size that was ruled out is tried once more; each time that it does not pay doubles them."""


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

    Of a size that was never run as many single runs are allowed for, and the hope is that it pays as the best does.
    Until a single run was seen, first or after a fault, jobs run alone. A size that does not pay is tried again now
    and then: it may have met a stall.
    """

    def __init__(self, max_batch: int = MAX_BATCH) -> None:
        self._usual = [Usual() for _ in range(max_batch)]
        self._seen = [0] * max_batch
        self._pause, self._left = [PAUSE] * max_batch, [PAUSE] * max_batch
        self._runs = 0
        self._known: tuple[object, tuple[list[float], int]] | None = None

    @property
    def single(self) -> Usual:
        """Of one job."""
        return self._usual[0]

    def took(self, size: int, seconds: float) -> None:
        """One more run."""
        if size == self.size():  # it was as large as may be: larger ones were ruled out
            for larger in range(size + 1, len(self._usual) + 1):
                self._wait(larger)
        self._runs += 1
        usual = self._usual[size - 1]
        if size > 1 and not self._seen[size - 1]:
            usual.s, usual.deviation_s = seconds, 0.0
        else:
            usual.took(seconds)
        self._seen[size - 1] += 1
        if size <= self.size():  # it pays
            self._pause[size - 1] = self._left[size - 1] = PAUSE

    def _wait(self, size: int) -> None:
        """One more run without ``size``, which is forgotten at the end of its pause and so tried again."""
        place = size - 1
        self._left[place] -= 1
        if not self._left[place]:
            self._seen[place] = 0
            self._left[place] = self._pause[place] = min(2 * self._pause[place], LONGEST_PAUSE)

    def forget(self) -> None:
        """After a fault: what was learnt may no longer hold. The single run's time stays as a first guess."""
        self._runs += 1
        self._seen = [0] * len(self._seen)

    def of(self, size: int) -> float:
        """What a run of ``size`` may take: the usual time and twice its deviation. It never falls with the size."""
        return self._learnt()[0][size - 1]

    def size(self) -> int:
        """The largest size that costs no more per job than a smaller one, in the mean."""
        return self._learnt()[1]

    def _learnt(self) -> tuple[list[float], int]:
        """Costs by size, and the best size. A crowd asks for them hundreds of times between two runs."""
        state = (self._runs, self.single.safe_s)  # others may ease the single run's
        if self._known is None or self._known[0] != state:
            costs = list(accumulate((self._guess(n) for n in range(1, len(self._usual) + 1)), max))
            best, least = 1, float("inf")  # seconds a job
            for n, usual in enumerate(self._usual if self._seen[0] else (), 1):
                each = usual.s / n if self._seen[n - 1] else least  # as good as the best: only a run can tell
                if each <= least:
                    best, least = n, each
            self._known = (state, (costs, best))
        return self._known[1]

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
    kept, done_in = 0, pace(min(limit, len(waiting)), curve, workers)
    for position, job in enumerate(waiting):
        if kept < limit and free_at + done_in[kept] <= job.ends_at:
            kept += 1
        else:
            lost.append(position)
    return lost


def all_in_time(ends_at: Sequence[float], free_at: float, curve: Curve, workers: int) -> bool:
    """Nobody is late when the one whose deadline comes first goes first. ``ends_at`` is in that order."""
    done_in = pace(len(ends_at), curve, workers)
    return all(free_at + took <= end for took, end in zip(done_in, ends_at, strict=True))


def finish(ahead: int, free_at: float, curve: Curve, workers: int) -> float:
    """When a job with ``ahead`` before it is expected to be done."""
    return free_at + pace(ahead + 1, curve, workers)[ahead]


def pace(count: int, curve: Curve, workers: int) -> list[float]:
    """How long after a worker is free the first ``count`` of a line are expected to be done, each."""
    size = curve.size()
    costs = [curve.of(n) for n in range(1, size + 1)]
    rounds = range(-(-count // (size * workers)))
    ends = [done * costs[-1] + costs[place // workers] for done in rounds for place in range(size * workers)]
    return ends[:count]
