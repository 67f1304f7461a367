"""New items into an index that stays as it is: no training, no item that was there changes its semantic ID.

A new item gets the first free semantic ID in this order: at each level the nearest code first, and the later levels
change first. So it takes its nearest codes when they are free, else the nearest free last code under its prefix; a
prefix that is full is passed over for the next nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline.index.trie import trie_arrays
from offline.index.vectors import check_finite
from schemas.errors import DataError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Path = tuple[int, ...]


@dataclass(frozen=True)
class Grown:
    """The codes of all items [N + n, L], and where the old [N] and the new items [n] are among them.

    The first ``num_live`` items are in SID order, and so are the withdrawn ones behind them.
    """

    codes: Ints
    old: Ints
    new: Ints
    num_live: int

    def trie(self) -> dict[str, Ints]:
        """The arrays that the decoder takes (``schemas.graphs``). A withdrawn item is no leaf, and has no path."""
        arrays = trie_arrays(self.codes[: self.num_live])
        pathless = np.zeros((len(self.codes) - self.num_live, self.codes.shape[1]), np.int64)
        return arrays | {"item_codes": self.codes, "item_path": np.concatenate([arrays["item_path"], pathless])}


def grow(codes: Ints, added: Ints, withdrawn: Sequence[int] = ()) -> Grown:
    """Old codes [N, L] in SID order and new ones [n, L] as one catalogue. ``withdrawn`` are places in both together.

    Raises:
        DataError: no item is left.
    """
    together = np.concatenate([codes, added])
    gone = np.zeros(len(together), bool)
    gone[np.asarray(withdrawn, np.int64)] = True
    if gone.all():
        raise DataError(
            "every item is withdrawn", where="catalogue", value=len(gone), mend="Leave one, or stop the service."
        )
    order = np.lexsort((*together.T[::-1], gone))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return Grown(together[order], place[: len(codes)], place[len(codes) :], int((~gone).sum()))


class Inserter:
    """Gives codes to new items, one after the other; it remembers those it gave.

    ``codes`` [N, L] are the catalogue's, in SID order; ``centroids`` [L, K, w] the codebook's.
    """

    def __init__(self, codes: Ints, centroids: Floats) -> None:
        self._columns = [np.ascontiguousarray(column) for column in codes.T]
        self._num_items, self._levels = codes.shape
        self._centroids, self._num_codes = centroids.astype(np.float64), centroids.shape[1]
        self._added: dict[Path, int] = {}  # how many were given, by path of any length
        self._ranges: dict[Path, tuple[int, int]] = {}

    def insert(self, vectors: Floats) -> Ints:
        """Codes [n, L] of ``vectors`` [n, w], in their order.

        Raises:
            DataError: a vector is not finite (its row is named), or every semantic ID is taken.
        """
        check_finite(vectors, "new items' vectors")
        return np.array([self._one(row) for row in vectors.astype(np.float64)], np.int64).reshape(-1, self._levels)

    def _one(self, vector: NDArray[np.float64]) -> Path:
        self._ranges = {(): (0, self._num_items)}  # kept for one item only: it would grow with the catalogue
        if self._full(()):
            raise DataError(
                "every semantic ID is taken",
                where="index.codes",
                value=self._num_codes**self._levels,
                mend="Raise index.codes or index.levels and build.",
            )
        path: Path = ()
        for level in range(self._levels):
            distance = ((self._centroids[level] - vector) ** 2).sum(1)
            # An upper level is full only when everything under it is: below a prefix with room there is always a way.
            path = next(
                (*path, int(code)) for code in np.argsort(distance, kind="stable") if not self._full((*path, int(code)))
            )
            vector = vector - self._centroids[level][path[-1]]
        for depth in range(self._levels + 1):
            self._added[path[:depth]] = self._added.get(path[:depth], 0) + 1
        return path

    def _full(self, path: Path) -> bool:
        begin, end = self._range(path)
        room = self._num_codes ** (self._levels - len(path))
        return end - begin + self._added.get(path, 0) >= room

    def _range(self, path: Path) -> tuple[int, int]:
        """Where the items under ``path`` are."""
        if path not in self._ranges:
            begin, end = self._range(path[:-1])
            column = self._columns[len(path) - 1][begin:end]
            edges = np.searchsorted(column, [path[-1], path[-1] + 1])
            self._ranges[path] = (begin + int(edges[0]), begin + int(edges[1]))
        return self._ranges[path]


def insert(codes: Ints, centroids: Floats, vectors: Floats) -> Grown:
    """``vectors`` [n, w] (latents, where the codebook has an encoder) beside the items with ``codes``."""
    return grow(codes, Inserter(codes, centroids).insert(vectors))


def move(rows: NDArray[np.generic], places: Ints, num_items: int, missing: Sequence[float] | float = -1) -> NDArray:
    """``rows`` [N, …] at their new ``places``; every other of the ``num_items`` rows is ``missing``."""
    out = np.full((num_items, *rows.shape[1:]), missing, rows.dtype)
    out[places] = rows
    return out
