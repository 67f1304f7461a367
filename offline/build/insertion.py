"""A release with other items in it, made of one that is there: the same graphs, other arrays, no training.

A new item is taken for the mean of the items whose texts are most like its own, weighed by how alike they are: that
gives its vector, from which it gets its codes (``offline.index.insert``), and its rows of the graphs' tables. It joins
the neighbour lists of those items, and has them as its own neighbours.

A withdrawn item leaves the trie and every list. Its rows stay: users did something with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline.index.insert import Grown, move
from offline.index.nearest import Nearest
from offline.index.trie import category_sets
from schemas.errors import ReleaseError
from schemas.graphs import CATEGORY_SETS

Array = NDArray[Any]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
LIKE = 10
"""Items that a new one is taken for the mean of."""
TABLES = ("item_in", "item_out", "item_bias")
WHOLE = ("intent_defaults", "prompt_defaults")
LISTS = ("neighbour_items", "neighbour_scores", "cohort_items", "cohort_scores")


@dataclass(frozen=True)
class Alike:
    """For each new item the numbers of the items most like it [n, T], best first, and shares that add up to 1."""

    items: Ints
    shares: Floats

    def mean(self, rows: Floats) -> Floats:
        """The weighted mean of ``rows`` [N, …] for each new item [n, …]."""
        weight = self.shares.reshape(*self.shares.shape, *[1] * (rows.ndim - 1))
        return (rows[self.items] * weight).sum(1).astype(np.float32)


def find_alike(text: Floats, new_text: Floats) -> Alike:
    """Of the catalogue's text vectors [N, t] those nearest to the new items' [n, t]."""
    cosine, items = Nearest(text, exact=True).search(new_text, min(LIKE, len(text)))
    weight = np.maximum(cosine, 1e-3)
    return Alike(items.astype(np.int64), (weight / weight.sum(1, keepdims=True)).astype(np.float32))


def grown_arrays(arrays: Mapping[str, Array], grown: Grown, alike: Alike, category: Ints) -> dict[str, Array]:
    """The arrays of a release [N] with the new items [n] among them. ``category`` [N + n]: the old items', then the
    new ones'.

    Raises:
        ReleaseError: the release has an array about items that this rule does not know.
    """
    category = category[np.argsort(np.concatenate([grown.old, grown.new]))]
    trie = grown.trie()
    if CATEGORY_SETS in arrays:
        trie |= category_sets(trie["item_path"][: grown.num_live], category[: grown.num_live])
    unknown = arrays.keys() - trie.keys() - {*TABLES, *WHOLE, *LISTS, "item_category"}
    if unknown:
        raise ReleaseError(
            "arrays that an insertion does not know",
            where="arrays",
            value=sorted(unknown),
            mend="Build a release that holds the new items.",
        )
    neighbours = _neighbours(arrays["neighbour_items"], arrays["neighbour_scores"], grown, alike)
    near_items, near_scores = _live(*neighbours, grown.num_live)
    cohort = _renumbered(arrays["cohort_items"], grown.old)
    cohort_items, cohort_scores = _live(cohort, arrays["cohort_scores"], grown.num_live)
    return {
        **trie,
        **{name: _table(arrays[name], grown, alike) for name in TABLES},
        **{name: arrays[name] for name in WHOLE},
        "item_category": category,
        "neighbour_items": near_items,
        "neighbour_scores": near_scores,
        "cohort_items": cohort_items,
        "cohort_scores": cohort_scores,
    }


def _table(rows: Array, grown: Grown, alike: Alike) -> Floats:
    """A table by item number; with a row for padding first when it has one row more than there are items."""
    padding = len(rows) - len(grown.old)
    out = move(rows[padding:], grown.old, len(grown.codes), 0)
    out[grown.new] = alike.mean(rows[padding:])
    return np.concatenate([rows[:padding], out]).astype(np.float32)


def _renumbered(items: Array, places: Ints) -> NDArray[np.int32]:
    """Item numbers by their new ones; padding stays."""
    return np.where(items >= 0, places[np.maximum(items, 0)], -1).astype(np.int32)


def _live(items: Array, scores: Array, num_live: int) -> tuple[NDArray[np.int32], Floats]:
    """Lists [n, M] without withdrawn items: those behind them move up."""
    gone = items >= num_live
    order = np.argsort(gone, axis=1, kind="stable")
    kept = ~np.take_along_axis(gone, order, 1)
    items, scores = np.take_along_axis(items, order, 1), np.take_along_axis(scores, order, 1)
    return np.where(kept, items, -1).astype(np.int32), np.where(kept, scores, 0).astype(np.float32)


def _neighbours(items: Array, scores: Array, grown: Grown, alike: Alike) -> tuple[NDArray[np.int32], Floats]:
    """Lists [N + n, M]. A link to or from a new item scores as the middle of the old item's list."""
    width = items.shape[1]
    out_items = move(_renumbered(items, grown.old), grown.old, len(grown.codes), -1)
    out_scores = move(scores, grown.old, len(grown.codes), 0).astype(np.float32)
    half = (np.maximum((items >= 0).sum(1), 1) - 1) // 2
    middle = scores[np.arange(len(scores)), half] + 1e-6
    for new, like, share in zip(grown.new, alike.items, alike.shares, strict=True):
        score = middle[like] * share / share.max()
        order = np.argsort(-score, kind="stable")[:width]
        out_items[new, : len(order)] = grown.old[like[order]]
        out_scores[new, : len(order)] = score[order]
        for old, own in zip(grown.old[like], score, strict=True):
            _join(out_items[old], out_scores[old], int(new), float(own))
    return out_items, out_scores


def _join(items: NDArray[np.int32], scores: Floats, new: int, score: float) -> None:
    """Put ``new`` into one list, in order; of a full list the last goes. It comes in at least at the last place."""
    length = int((items >= 0).sum())
    place = min(int((scores[:length] >= score).sum()), len(items) - 1)
    if place == len(items) - 1 and length == len(items):
        score = float(scores[place])
    items[place + 1 :], scores[place + 1 :] = items[place:-1].copy(), scores[place:-1].copy()
    items[place], scores[place] = new, score
