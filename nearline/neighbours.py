"""The neighbours of a user's window: what the semantic IDs miss. They join the beam when the request comes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearline.release import Release


class Neighbours:
    """Sums the nearest items of a window's items, newer events weighing more."""

    def __init__(self, items: NDArray[np.int32], scores: NDArray[np.float32], *, decay: float, limit: int) -> None:
        """``items`` and ``scores`` [N, M] as in ``schemas.graphs``; at most ``limit`` neighbours are kept."""
        self._items = items
        self._scores = scores
        self._decay = decay
        self._limit = limit

    @classmethod
    def of_release(cls, release: Release) -> Neighbours:
        """The neighbours as one release defines them."""
        model, arrays = release.model, release.arrays
        return cls(
            arrays["neighbour_items"],
            arrays["neighbour_scores"],
            decay=model.neighbour_decay,
            limit=model.neighbours,
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
        found = self._items[rows].ravel()
        mass = (self._scores[rows] * weights[:, None]).ravel()
        # Padding (-1) sorts to the front, where it is cut off.
        order = np.argsort(found, kind="stable")
        found, mass = found[order], mass[order]
        first = int(np.searchsorted(found, 0))
        found, mass = found[first:], mass[first:]
        if not len(found):
            return [], []
        starts = np.flatnonzero(np.concatenate(([True], found[1:] != found[:-1])))
        return self._best(found[starts], np.add.reduceat(mass, starts))

    def _best(self, items: NDArray[np.int32], scores: NDArray[np.float64]) -> tuple[list[int], list[float]]:
        if len(items) > self._limit:
            # Everything that ties with the last place stays in until the tie rule has spoken.
            least = np.partition(scores, -self._limit)[-self._limit]
            keep = scores >= least
            items, scores = items[keep], scores[keep]
        order = np.lexsort((items, -scores))[: self._limit]
        return items[order].tolist(), scores[order].tolist()
