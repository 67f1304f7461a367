"""How good lists are: against what users took, and beyond that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
CUTS = (5, 10, 50)
BINS = 10
BLOCK = 1_000
NOTHING = -2
"""No item, and not the padding of lists either."""
JUDGED_BY = ("recall_at_10", "recall_at_50")
"""What settings are chosen by, on validation, unless said otherwise."""


def quality(lists: NDArray[np.integer], targets: Sequence[NDArray[np.int64]]) -> dict[str, float]:
    """Recall and NDCG at 5, 10 and 50: means over all cases, those with an empty list included.

    Recall@k is hits in the first k over the number of targets; NDCG@k is the gain with 1/log2(rank + 1) over the
    best possible gain of as many targets. ``lists`` [cases, ≥ 1] holds item numbers, best first, -1 padding.
    """
    names = [f"{what}_at_{cut}" for what in ("recall", "ndcg") for cut in CUTS]
    if not len(targets):
        return dict.fromkeys(names, 0.0)
    gain = 1.0 / np.log2(np.arange(2, 2 + CUTS[-1]))
    best = np.r_[0.0, np.cumsum(gain)]
    size = np.array([len(wanted) for wanted in targets])
    hit = np.concatenate([_hits(lists[at : at + BLOCK], targets[at : at + BLOCK]) for at in range(0, len(size), BLOCK)])
    recall = [hit[:, :cut].sum(1) / size for cut in CUTS]
    ndcg = [hit[:, :cut] @ gain[: len(hit[0, :cut])] / best[np.minimum(size, cut)] for cut in CUTS]
    return dict(zip(names, (float(values.mean()) for values in recall + ndcg), strict=True))


def _hits(lists: NDArray[np.integer], targets: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Whether each of the first 50 of ``lists`` is among the case's targets: [cases, ≤ 50]."""
    wanted = np.full((len(targets), max(len(one) for one in targets)), NOTHING, np.int64)
    for row, one in enumerate(targets):
        wanted[row, : len(one)] = one
    found = lists[:, : CUTS[-1]]
    return (found[:, :, None] == wanted[:, None, :]).any(-1) & (found >= 0)


def beyond(lists: NDArray[np.integer], vectors: Floats, bought: NDArray[np.int64]) -> dict[str, float]:
    """What recall doesn't tell of the first 10 of each list.

    ``coverage``: share of the catalogue that is in some list. ``diversity``: 1 - mean cosine of a list's pairs, by
    ``vectors`` [N, v]. ``novelty``: mean of -log2 of an item's share of all events (``bought`` [N], one added), bits.
    """
    top = lists[:, :10]
    shown = top[top >= 0]
    if not len(shown):
        return {"coverage": 0.0, "diversity": 0.0, "novelty": 0.0}
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    apart = []
    for row in top:
        rows = unit[row[row >= 0]]
        if len(rows) > 1:
            pairs = len(rows) * (len(rows) - 1)
            apart.append(1.0 - (np.square(rows.sum(0)).sum() - np.square(rows).sum()) / pairs)
    share = (bought + 1) / (bought + 1).sum()
    return {
        "coverage": len(np.unique(shown)) / len(vectors),
        "diversity": float(np.mean(apart)) if apart else 0.0,
        "novelty": float(-np.log2(share[shown]).mean()),
    }


class Bin(NamedTuple):
    """Some places of the lists: the mean chance they were given, the share that was right, and how many they are."""

    said: float
    found: float
    places: int


def calibration(
    lists: NDArray[np.integer], scores: Floats, targets: Sequence[NDArray[np.int64]], temperature: float = 1.0
) -> list[Bin]:
    """The scores read as log-odds within a list: what the softmax over the list says beside how often it is right, in
    up to 10 bins of equal size, the least likely first."""
    if not len(lists):
        return []
    scaled = np.where(lists >= 0, scores / temperature, -np.inf)
    top = np.max(scaled, axis=1, keepdims=True)
    chance = np.exp(scaled - np.where(np.isfinite(top), top, 0.0))
    chance /= np.maximum(chance.sum(axis=1, keepdims=True), 1e-30)
    inside = lists >= 0
    hit = np.stack([np.isin(row, wanted) for row, wanted in zip(lists, targets, strict=True)])[inside]
    said = chance[inside]
    order = np.argsort(said, kind="stable")
    return [
        Bin(float(said[part].mean()), float(hit[part].mean()), len(part))
        for part in np.array_split(order, BINS)
        if len(part)
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Expected calibration error: the mean distance between said and found, weighted by the places in each bin."""
    places = sum(one.places for one in bins)
    return sum(one.places * abs(one.said - one.found) for one in bins) / max(1, places)
