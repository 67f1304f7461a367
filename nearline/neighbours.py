"""The neighbours of a user's window: what the semantic IDs miss. They join the beam when the request comes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearline.release import Release


class Neighbours:
    """Sums the nearest items of a window's items, newer events weighing more. Not for several threads at once."""

    def __init__(
        self,
        items: NDArray[np.int32],
        scores: NDArray[np.float32],
        *,
        decay: float,
        limit: int,
        repeats: bool = True,
    ) -> None:
        """``items`` and ``scores`` [N, M] as in ``schemas.graphs``; at most ``limit`` neighbours are kept, without
        ``repeats`` none that is in the window."""
        self._items = items
        self._scores = scores
        self._decay = decay
        self._limit = limit
        self._repeats = repeats
        # Scratch, by item number. The last element belongs to the padding, -1.
        self._sums = np.zeros(len(items) + 1)
        self._place = np.zeros(len(items) + 1, np.int64)

    @classmethod
    def of_release(cls, release: Release) -> Neighbours:
        """The neighbours as one release defines them."""
        model, arrays = release.model, release.arrays
        return cls(
            arrays["neighbour_items"],
            arrays["neighbour_scores"],
            decay=model.neighbour_decay,
            limit=model.neighbours,
            repeats=model.neighbour_repeats,
        )

    def of(self, window: Sequence[int]) -> tuple[list[int], list[float]]:
        """Item numbers and scores, best first; equal scores by item number.

        ``window`` are item numbers, newest first. The p-th event, from 0, gives each neighbour of its item
        ``decay ** p`` times the neighbour's score, and an item's score is the sum.
        """
        if not window:
            return [], []
        rows = np.asarray(window)
        weights = self._decay ** np.arange(len(rows))
        found = np.asarray(self._items[rows], np.int64).ravel()
        mass = (self._scores[rows] * weights[:, None]).ravel()
        # Of the places that hold one item the last one stands for it: distinct items without sorting.
        places = np.arange(len(found))
        self._place[found] = places
        items = found[self._place[found] == places]
        np.add.at(self._sums, found, mass)
        scores = self._sums[items]
        self._sums[items] = 0.0
        real = items >= 0
        if not self._repeats:
            real &= ~np.isin(items, rows)
        return self._best(items[real], scores[real])

    def _best(self, items: NDArray[np.int64], scores: NDArray[np.float64]) -> tuple[list[int], list[float]]:
        if len(items) > self._limit:
            # Everything that ties with the last place stays in until the tie rule has spoken.
            least = np.partition(scores, -self._limit)[-self._limit]
            keep = scores >= least
            items, scores = items[keep], scores[keep]
        order = np.lexsort((items, -scores))[: self._limit]
        return items[order].tolist(), scores[order].tolist()
