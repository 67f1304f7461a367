"""Neighbour lists: for each item, what is taken next by those who took it, and what resembles it.

The same rule turns a window into neighbours here (evaluation) and near-line: the p-th newest event weighs
``decay ** p``, the items of its list add weight × score, the best M stay; equal scores by item number.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import msgspec
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from offline.histories import Case, Histories
from offline.metrics import quality

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Sparse = Any
"""A matrix of scipy.sparse, which has no types."""
COUNTING_DECAY = 0.98
SHRINK = 10.0
CONTENT_SHARE = 0.02
FOLDS = 2
KEPT = 200
"""Followers of an item that are looked at; the lists are far shorter."""


class Settings(msgspec.Struct, frozen=True):
    """Chosen on validation.

    ``popularity`` divides by the popularity of what follows to this power, ``own`` weighs the link of an item to
    itself (a repeat), ``decay`` the age of an event in the window.
    """

    popularity: float
    own: float
    decay: float


GRID = [
    Settings(popularity, own, decay)
    for popularity in (0.2, 0.5)
    for own in (1.0, 4.0, 16.0, 64.0)
    for decay in (0.95, 0.98, 1.0)
]


@dataclass(frozen=True)
class Neighbours:
    """``items`` int32 [N, M], -1 padding, best first; ``scores`` float32 [N, M]."""

    items: NDArray[np.int32]
    scores: Floats

    def matrix(self) -> Sparse:
        """The same as a sparse [N, N]."""
        row, place = np.nonzero(self.items >= 0)
        return sp.csr_matrix(
            (self.scores[row, place], (row, self.items[row, place])), shape=(len(self.items), len(self.items))
        )


def transitions(histories: Histories, num_items: int, window: int) -> Sparse:
    """[N, N]: how often j was taken in a session whose window held i, per time that i was in a window."""
    begins = np.flatnonzero(np.r_[True, np.diff(histories.session) != 0])
    ends = np.r_[begins[1:], len(histories.item)]
    user_begin = histories.start[:-1][histories.user[begins]]
    before = np.minimum(begins - user_begin, window)
    session = np.repeat(np.arange(len(begins)), before)
    ago = np.arange(before.sum()) - np.repeat(np.cumsum(before) - before, before)
    place = np.repeat(begins, before) - 1 - ago
    held: Sparse = sp.csr_matrix(
        ((COUNTING_DECAY**ago).astype(np.float32), (session, histories.item[place])), shape=(len(begins), num_items)
    )
    of = np.repeat(np.arange(len(begins)), ends - begins)
    taken: Sparse = sp.csr_matrix((np.ones(len(of), np.float32), (of, histories.item)), shape=held.shape)
    taken.data[:] = 1.0
    scale: Sparse = sp.diags(1.0 / (np.asarray(held.sum(0)).ravel() + SHRINK))
    follow = (scale @ (held.T.tocsr() @ taken)).tocsr().astype(np.float32)
    return _largest(follow, KEPT)


def _largest(matrix: Sparse, keep: int) -> Sparse:
    """The ``keep`` largest of each row, in no order, and the diagonal."""
    rows = []
    for row, (begin, end) in enumerate(itertools.pairwise(matrix.indptr)):
        if end - begin <= keep:
            rows.append(np.arange(begin, end))
            continue
        best = np.argpartition(-matrix.data[begin:end], keep)[:keep]
        own = np.flatnonzero(matrix.indices[begin:end] == row)
        rows.append(begin + np.union1d(best, own))
    kept = np.concatenate(rows)
    start = np.r_[0, np.cumsum([len(row) for row in rows])]
    return sp.csr_matrix((matrix.data[kept], matrix.indices[kept], start), shape=matrix.shape)


def neighbour_lists(follow: Sparse, alike: Sparse, bought: Ints, settings: Settings, num_neighbours: int) -> Neighbours:
    """The best of each row of the blended scores."""
    scale: Sparse = sp.diags(np.maximum(bought, 1).astype(np.float32) ** -settings.popularity)
    blend = (follow @ scale).tocsr()
    own = sp.diags(blend.diagonal() * (settings.own - 1.0))
    typical = float(np.mean(blend.max(axis=1).todense())) or 1.0
    blend = (blend + own + alike * (CONTENT_SHARE * typical)).tocsr()
    lists = top_of_rows(blend, num_neighbours)
    # A list's best score is 1 on average, so that the floor of the decoder's logarithm means the same everywhere.
    return Neighbours(lists.items, lists.scores / max(float(lists.scores[:, 0].mean()), 1e-9))


def fold_lists(
    histories: Histories, alike: Sparse, settings: Settings, num_neighbours: int, window: int
) -> list[Neighbours]:
    """For training: lists for each half of the users (even, odd), made from the other half only.

    Lists that counted a session know its items too well: a generator that trained on them would trust neighbours
    more than they deserve when serving.
    """
    half = histories.user % FOLDS
    lists = []
    for fold in range(FOLDS):
        others = histories.only(half != fold)
        bought = np.bincount(others.item, minlength=alike.shape[0])
        follow = transitions(others, alike.shape[0], window)
        lists.append(neighbour_lists(follow, alike, bought, settings, num_neighbours))
    return lists


def content_links(vectors: Floats, num_neighbours: int) -> Sparse:
    """Cosine of each item with its nearest by vector (itself left out): what an item that nobody took has."""
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.ascontiguousarray(vectors / np.maximum(norm, 1e-9), np.float32)
    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    cosine, near = index.search(unit, min(num_neighbours + 1, len(unit)))
    row = np.repeat(np.arange(len(unit)), near.shape[1])
    good = (near.ravel() != row) & (cosine.ravel() > 0)
    flat = (cosine.ravel()[good], (row[good], near.ravel()[good]))
    return sp.csr_matrix(flat, shape=(len(unit), len(unit)), dtype=np.float32)


def top_of_rows(matrix: Sparse, keep: int) -> Neighbours:
    """The ``keep`` largest of each row, best first; equal scores by item number."""
    matrix = matrix.tocsr()
    matrix.sum_duplicates()
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, row))
    rank = np.arange(len(row)) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    good = (rank < keep) & (matrix.data[order] > 0)
    items = np.full((matrix.shape[0], keep), -1, np.int32)
    scores = np.zeros((matrix.shape[0], keep), np.float32)
    items[row[good], rank[good]] = matrix.indices[order][good]
    scores[row[good], rank[good]] = matrix.data[order][good]
    return Neighbours(items, scores)


def window_neighbours(cases: Sequence[Case], lists: Neighbours, decay: float, keep: int) -> Neighbours:
    """The neighbours of each case's window: [cases, keep]."""
    lengths = np.array([len(case.window) for case in cases])
    row = np.repeat(np.arange(len(cases)), lengths)
    ago = np.concatenate([np.arange(length)[::-1] for length in lengths]) if len(cases) else np.zeros(0)
    item = np.concatenate([case.window for case in cases]) if len(cases) else np.zeros(0, np.int64)
    held: Sparse = sp.csr_matrix(
        ((decay**ago).astype(np.float32), (row, item)), shape=(len(cases), len(lists.items)), dtype=np.float32
    )
    return top_of_rows(held @ lists.matrix(), keep)


def choose(
    follow: Sparse, alike: Sparse, bought: Ints, cases: Sequence[Case], *, num_neighbours: int, keep: int
) -> tuple[Settings, Neighbours, dict[str, float]]:
    """The settings with the best Recall@50 + Recall@10 on validation, their lists and their metrics."""
    best: tuple[float, Settings, Neighbours, dict[str, float]] | None = None
    targets = [case.target for case in cases]
    for popularity, own in dict.fromkeys((s.popularity, s.own) for s in GRID):
        lists = neighbour_lists(follow, alike, bought, Settings(popularity, own, 1.0), num_neighbours)
        for settings in (s for s in GRID if (s.popularity, s.own) == (popularity, own)):
            found = quality(window_neighbours(cases, lists, settings.decay, keep).items, targets)
            value = found["recall_at_50"] + found["recall_at_10"]
            if best is None or value > best[0] + 1e-9:
                best = (value, settings, lists, found)
    assert best is not None
    return best[1], best[2], best[3]
