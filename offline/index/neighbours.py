"""Neighbour lists: for each item, what is taken with it or after it, and what resembles it.

The same rule turns a window into neighbours here (evaluation) and near-line: the p-th newest event weighs
``decay ** p``, the items of its list add weight × score, the best M stay; equal scores by item number. A release says
whether the window's own items may be among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from offline.histories import Histories
from offline.index.links import KEPT, Sparse, content_links, largest, together, transitions, without_own
from offline.index.nearest import Nearest
from offline.metrics import JUDGED_BY, quality

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
FOLLOW, TOGETHER, AFTER = "follow", "together", "after"


class Settings(msgspec.Struct, frozen=True):
    """Chosen on validation.

    ``link`` is the kind of links (see ``make_links``). Scores are divided by the popularity of what is linked to to
    the power ``popularity``; the link of an item to itself (a repeat) has the weight ``own``, words that agree have
    ``content`` (in units of an item's strongest link), links lent by the items most alike ``lent``, the event before
    last ``decay`` of the last. Without ``repeats`` the items of the window are never neighbours of it.
    """

    link: str = TOGETHER
    popularity: float = 0.3
    content: float = 0.7
    own: float = 0.0
    decay: float = 0.7
    repeats: bool = True
    lent: float = 0.0


OPTIONS: Mapping[str, Sequence[float | str | bool]] = {
    "link": (TOGETHER, AFTER, FOLLOW),
    "repeats": (True, False),
    "own": (0.0, 1.0, 4.0, 16.0, 64.0),
    "decay": (0.4, 0.5, 0.6, 0.7, 0.85, 0.95, 0.98, 1.0),
    "content": (0.02, 0.1, 0.3, 0.7, 1.2, 1.6, 2.2),
    "popularity": (-0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.5),
    "lent": (0.0, 0.15, 0.3, 0.6),
}
"""What is tried, one setting at a time, the others as they are then; twice through."""
ROUNDS = 2
BLOCK = 500
LENDERS = 5
"""Items most alike whose links an item also has, weakly: where it was taken seldom they say more than its own."""


class Asked(Protocol):
    """What these rules need of a case."""

    @property
    def window(self) -> Ints:
        """Item numbers, oldest first."""
        ...

    @property
    def target(self) -> Ints:
        """Item numbers that were then taken."""
        ...


@dataclass(frozen=True)
class Links:
    """What lists are made from: ``kinds`` of links between items, the same ``lent`` by items alike, ``alike`` by
    content, all [N, N], and how often each item was taken."""

    kinds: Mapping[str, Sparse]
    lent: Mapping[str, Sparse]
    alike: Sparse
    bought: Ints

    def blend(self, settings: Settings) -> Sparse:
        """One matrix [N, N]."""
        scale: Sparse = sp.diags(np.maximum(self.bought, 1).astype(np.float32) ** -settings.popularity)
        links = (self.kinds[settings.link] @ scale).tocsr()
        own = links.diagonal()
        if settings.lent:
            links = links + settings.lent * (self.lent[settings.link] @ scale)
        links = without_own(links)
        strongest = float(np.mean(links.max(axis=1).todense())) or 1.0
        repeat = np.where(own > 0, own, strongest if settings.link != FOLLOW else 0.0) * settings.own
        return (links + sp.diags(repeat) + self.alike * (settings.content * strongest)).tocsr().astype(np.float32)


def make_links(histories: Histories, words: Sparse, window: int, most: int | None = None) -> Links:
    """Links of all kinds between the items whose words are the rows of ``words``; of behaviour's the ``most`` largest
    of an item, or all. *Together* looks both ways, *after* only at what came later."""
    num_items = words.shape[0]
    kinds = {
        FOLLOW: transitions(histories, num_items, window),
        TOGETHER: together(histories, num_items),
        AFTER: together(histories, num_items, back=0.0, popularity=0.1),
    }
    if most is not None:
        kinds = {name: largest(links, most) for name, links in kinds.items()}
    alike = content_links(words, KEPT)
    lenders = _shares(top_of_rows(alike, LENDERS).matrix())
    lent = {name: _lent(lenders, links, most or KEPT) for name, links in kinds.items()}
    return Links(kinds, lent, alike, np.bincount(histories.item, minlength=num_items))


def _lent(lenders: Sparse, links: Sparse, keep: int) -> Sparse:
    """The ``keep`` largest of each row of the product, some rows at a time: whole it is several times as large."""
    blocks = range(0, links.shape[0], BLOCK)
    return sp.vstack([largest((lenders[begin : begin + BLOCK] @ links).tocsr(), keep) for begin in blocks]).tocsr()


def _shares(matrix: Sparse) -> Sparse:
    """Each row divided by its sum."""
    return (sp.diags(1 / np.maximum(np.asarray(matrix.sum(axis=1)).ravel(), np.float32(1e-9))) @ matrix).tocsr()


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


def neighbour_lists(links: Links, settings: Settings, num_neighbours: int) -> Neighbours:
    """The best of each row of the blended links. A list's best score is 1 on average, so that the floor of the
    decoder's logarithm means the same everywhere."""
    lists = top_of_rows(links.blend(settings), num_neighbours)
    return Neighbours(lists.items, lists.scores / max(float(lists.scores[:, 0].mean()), 1e-9))


def top_of_rows(matrix: Sparse, keep: int) -> Neighbours:
    """The ``keep`` largest of each row, best first; equal scores by item number."""
    matrix = matrix.tocsr()
    matrix.sum_duplicates()
    matrix = _with_most(matrix, keep)
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, row))
    rank = np.arange(len(row)) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    good = (rank < keep) & (matrix.data[order] > 0)
    items = np.full((matrix.shape[0], keep), -1, np.int32)
    scores = np.zeros((matrix.shape[0], keep), np.float32)
    items[row[good], rank[good]] = matrix.indices[order][good]
    scores[row[good], rank[good]] = matrix.data[order][good]
    return Neighbours(items, scores)


def _with_most(matrix: Sparse, keep: int) -> Sparse:
    """The same without what is smaller than the ``keep``-th largest of its row: there is less to sort."""
    wanted = np.ones(matrix.nnz, bool)
    for begin, end in itertools.pairwise(matrix.indptr):
        if end - begin > keep:
            row = matrix.data[begin:end]
            wanted[begin:end] = row >= np.partition(row, end - begin - keep)[end - begin - keep]
    start = np.r_[0, np.cumsum(wanted)][matrix.indptr]
    return sp.csr_matrix((matrix.data[wanted], matrix.indices[wanted], start), shape=matrix.shape)


def window_neighbours(
    cases: Sequence[Asked], lists: Neighbours, decay: float, keep: int, *, repeats: bool = True
) -> Neighbours:
    """The neighbours of each case's window: [cases, keep]."""
    scores = (_held(cases, decay, len(lists.items)) @ lists.matrix()).tocsr()
    return top_of_rows(scores if repeats else _without_windows(scores, cases), keep)


def nearest_items(vectors: Floats, keep: int) -> Ints:
    """The items [N, keep] nearest to each by cosine, itself left out; itself again where there are no more."""
    _, near = Nearest(vectors).search(vectors, min(keep + 1, len(vectors)))
    own = np.arange(len(vectors))[:, None]
    near = np.where(near < 0, own, near)
    # Itself goes last, then out.
    order = np.argsort(near == own, axis=1, kind="stable")
    near = np.take_along_axis(near, order, axis=1)[:, :keep]
    return np.concatenate([near, np.repeat(own, keep - near.shape[1], axis=1)], axis=1)


def choose(
    links: Links, cases: Sequence[Asked], keep: int, *, seen: bool = True, by: Sequence[str] = JUDGED_BY
) -> Settings:
    """The settings with the largest sum of the metrics ``by`` on validation, lists uncut; ``seen`` says whether items
    of the window may be recalled."""
    targets = [case.target for case in cases]
    tried: dict[Settings, float] = {}

    def value(settings: Settings) -> float:
        if settings not in tried:
            found = quality(recall_uncut(links, settings, cases, keep, seen=seen), targets)
            tried[settings] = sum(found[name] for name in by)
        return tried[settings]

    settings = Settings(repeats=seen)  # what may not be recalled takes no place either
    for _ in range(ROUNDS):
        for name in (name for name in OPTIONS if seen or name != "repeats"):
            settings = max(_others(settings, name), key=value)
    return settings


def recall_uncut(
    links: Links, settings: Settings, cases: Sequence[Asked], keep: int, *, seen: bool = True
) -> NDArray[np.integer]:
    """The neighbour method by itself: item numbers [cases, keep], best first, from lists that are not cut."""
    blend = links.blend(settings)
    parts = []
    for begin in range(0, len(cases), BLOCK):
        some = cases[begin : begin + BLOCK]
        scores = (_held(some, settings.decay, blend.shape[0]) @ blend).tocsr()
        if not (seen and settings.repeats):
            scores = _without_windows(scores, some)
        parts.append(top_of_rows(scores, keep).items)
    return np.concatenate(parts)


def _others(settings: Settings, name: str) -> Iterator[Settings]:
    """``settings`` first (so that it stays among equals), then with the other values of one field."""
    yield settings
    for value in OPTIONS[name]:
        if value != getattr(settings, name):
            yield msgspec.structs.replace(settings, **{name: value})


def _held(cases: Sequence[Asked], decay: float, num_items: int) -> Sparse:
    """[cases, N]: the weights of each window's events."""
    lengths = np.array([len(case.window) for case in cases], np.int64)
    row = np.repeat(np.arange(len(cases)), lengths)
    ago = np.arange(lengths.sum())[::-1] - np.repeat(np.cumsum(lengths[::-1])[::-1] - lengths, lengths)
    item = np.concatenate([case.window for case in cases]) if len(cases) else np.zeros(0, np.int64)
    weight = (decay**ago).astype(np.float32)
    return sp.csr_matrix((weight, (row, item)), shape=(len(cases), num_items), dtype=np.float32)


def _without_windows(scores: Sparse, cases: Sequence[Asked]) -> Sparse:
    """Scores [cases, N] with zeros at the items of each window."""
    for row, case in enumerate(cases):
        inside = slice(scores.indptr[row], scores.indptr[row + 1])
        scores.data[inside][np.isin(scores.indices[inside], case.window)] = 0.0
    return scores
