"""Training examples: windows of events, with targets that see what they would see when served.

A target at event j is asked for from a row of the intent encoder and a prompt:

- *between sessions*: the row of the last event before j's session, and some of the session's first events on the
  device. So it is when a user comes back.
- *within a session*: the row of an event before j (the near-line tier lags a little), and what lies between on the
  device. Lags are short, mostly: half of them none, few as long as the device remembers; never longer than the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offline.histories import Buckets, Histories
from schemas.release import UNKNOWN_BUCKET

Ints = NDArray[np.int64]
HOUR_MS = 3_600_000
SHORT = 3
"""Power of a random number that makes a lag: the higher, the shorter they are."""
BETWEEN = 0.7
"""Share of targets between sessions."""
AHEAD = 16
"""How far past the window's end a target may lie."""
TARGETS = 16
"""Targets per window, at most."""
POOL = 16
"""Batches whose windows are sorted by length together: little padding, and still a random order."""
FORGET_BUCKET = 0.1


@dataclass(frozen=True)
class Batch:
    """Windows [B, T] as the intent encoder takes them; of each of n targets its window, row, item and prompt.

    ``row`` is -1 where the window holds nothing before the target. T is the longest window of the batch.
    """

    item: Tensor
    kind: Tensor
    gap: Tensor
    window: Tensor
    row: Tensor
    target: Tensor
    bucket: Tensor
    clock: Tensor
    local_item: Tensor  # [n, E] item numbers, -1 padding
    local_kind: Tensor
    local_age: Tensor

    def to(self, device: str) -> Batch:
        """The same on another device."""
        return Batch(*(tensor.to(device) for tensor in vars(self).values()))


class Examples:
    """Draws batches from histories; everything is drawn from ``rng``."""

    def __init__(self, histories: Histories, buckets: Buckets, window: int, local_events: int) -> None:
        self.histories = histories
        self.window = window
        self.local_events = local_events
        self.user = histories.user
        self.session_start = histories.session_start
        self.bucket = np.array([buckets.of(user) for user in histories.users], np.int64)
        hours = np.diff(histories.at, prepend=histories.at[:1]) / HOUR_MS
        hours[histories.start[:-1][np.diff(histories.start) > 0]] = 0.0
        self.gap = np.log1p(np.maximum(hours, 0)).astype(np.float32)
        length = np.diff(histories.start)
        self.per_user = np.where(length > 1, np.ceil(length / window), 0).astype(np.int64)

    @property
    def num_windows(self) -> int:
        """Of all users, end to end; who has one event only has nothing to learn from."""
        return int(self.per_user.sum())

    @property
    def mean_targets(self) -> float:
        """Per window, about."""
        length = np.diff(self.histories.start)[self.per_user > 0]
        return float(np.minimum(length - 1, TARGETS).mean())

    def epoch(self, windows: int, most: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Batches of ``windows`` each, of no more than ``most`` in all: each user's events are cut into windows at a
        random place."""
        ends = rng.permutation(self._ends(rng))[:most]
        length = np.minimum(ends - self.histories.start[self.user[ends - 1]], self.window)
        pool = np.arange(len(ends)) // (POOL * windows)
        ends = ends[np.lexsort((length, pool))]
        batches = max(1, len(ends) // windows)
        for place in rng.permutation(batches):
            yield self.batch(ends[place * windows : (place + 1) * windows], rng)

    def _ends(self, rng: np.random.Generator) -> Ints:
        """Where windows end (the event after the last): every ``window`` events back from the user's last or so.

        A history that fits is one window.
        """
        start, stop, count = self.histories.start[:-1], self.histories.start[1:], self.per_user
        shift = np.where(count > 1, rng.integers(0, self.window, len(start)), 0)
        ago = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        ends = np.repeat(stop - shift, count) - ago * self.window
        return np.maximum(ends, np.repeat(start, count) + 1)

    def batch(self, ends: Ints, rng: np.random.Generator) -> Batch:
        """The windows that end before ``ends``, with targets drawn in and a little after them."""
        begin, stop = self.histories.start[self.user[ends - 1]], self.histories.start[self.user[ends - 1] + 1]
        first = np.maximum(ends - self.window, begin)
        return self.asked(ends, *_draw(first + 1, np.minimum(ends + AHEAD, stop), rng), rng)

    def asked(self, ends: Ints, window: Ints, target: Ints, rng: np.random.Generator) -> Batch:
        """The windows that end before ``ends``, with the events ``target`` [n] asked for from the windows ``window``
        [n], each of the same user."""
        first = np.maximum(ends - self.window, self.histories.start[self.user[ends - 1]])
        longest = int((ends - first).max())
        place = ends[:, None] - longest + np.arange(longest)
        real = place >= first[:, None]
        place = np.maximum(place, 0)
        head = place == first[:, None]
        before, local = self._seen(target, rng)
        before = np.minimum(before, ends[window] - 1)
        row = before - ends[window] + longest
        row[before < first[window]] = -1
        bucket = self.bucket[self.user[target]]
        bucket = np.where(rng.random(len(bucket)) < FORGET_BUCKET, UNKNOWN_BUCKET, bucket)
        age = np.log1p((self.histories.at[target][:, None] - self.histories.at[local]).clip(0) / HOUR_MS)
        arrays = (
            np.where(real, self.histories.item[place] + 1, 0),
            np.where(real, self.histories.kind[place], 0),
            np.where(real & ~head, self.gap[place], 0).astype(np.float32),
            window,
            row,
            self.histories.item[target],
            bucket,
            clock_features(self.histories.at[target]),
            np.where(local >= 0, self.histories.item[local], -1),
            np.where(local >= 0, self.histories.kind[local], 0),
            np.where(local >= 0, age, 0).astype(np.float32),
        )
        return Batch(*(torch.from_numpy(array) for array in arrays))

    def _seen(self, target: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """The newest event that the row has seen, and the events on the device [n, E] (-1 padding, newest last)."""
        opened = self.session_start[target]
        between = rng.random(len(target)) < BETWEEN
        delay = (rng.random(len(target)) ** SHORT * (self.local_events + 1)).astype(np.int64)
        # Only events of the session itself can be missing: what came before it was seen long ago.
        count = np.minimum(delay, target - opened)
        newest = np.where(between, opened - 1, target - 1 - count)
        place = np.arange(self.local_events) - self.local_events + count[:, None]
        local = newest[:, None] + 1 + place
        same = self.user[local.clip(0)] == self.user[target][:, None]
        return newest, np.where((place >= 0) & (local >= 0) & same, local, -1)


def _draw(first: Ints, last: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Of each window the numbers of up to 16 different places in ``first`` … ``last`` - 1, flat: window and place."""
    span = int((last - first).max())
    key = rng.random((len(first), span))
    key[np.arange(span) >= (last - first)[:, None]] = 2.0
    order = np.argsort(key, axis=1)[:, :TARGETS]
    window, rank = np.nonzero(np.take_along_axis(key, order, axis=1) < 2.0)
    return window, first[window] + order[window, rank]


def clock_features(at_ms: Ints) -> NDArray[np.float32]:
    """``schemas.graphs.clock_feature`` of many times: [n, 4]."""
    day = at_ms / 86_400_000
    hour, week = 2 * np.pi * (day % 1), 2 * np.pi * ((day + 3) % 7) / 7
    return np.stack([np.sin(hour), np.cos(hour), np.sin(week), np.cos(week)], axis=-1).astype(np.float32)
