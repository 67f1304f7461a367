"""Semantic IDs: a residual codebook, the last level assigned inside each prefix so that no two items share one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray

from offline.index.room import make_room, padded, spread
from offline.index.rows import first_of_equal, num_distinct
from offline.index.rqvae import Encoder, train_rqvae
from offline.index.usage import LevelUse, level_use, refuse_collapse
from offline.index.vectors import check_finite
from schemas.errors import DataError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
KMEANS, RQVAE = "kmeans", "rqvae"
ITERATIONS = 15


@dataclass(frozen=True)
class Codebook:
    """``codes`` [N, L], unique. ``num_codes`` is what was used of the codes asked for; ``moved`` counts items that
    left a prefix because it was full, ``reassigned`` those that share a nearest last code with another.

    ``centroids`` [L, K, w] and ``encoder`` (None: vectors as they are) give an item that comes later its codes.
    """

    codes: Ints
    num_codes: int
    moved: int
    reassigned: int
    centroids: Floats
    encoder: Encoder | None
    levels: list[LevelUse]


def build_codes(vectors: Floats, levels: int, codes: int, seed: int, method: str = KMEANS) -> Codebook:
    """Codes of every item.

    With few distinct vectors there are fewer codes than asked for: as many as distinct vectors, but always enough
    that ``codes ** levels`` items have room. Overflow: a prefix that more items chose than there are last codes
    keeps the first of them; each of the others goes to the emptiest prefix that shares most of the path.

    Raises:
        DataError: a vector is not finite (its row is named), there are more items than semantic IDs, the codebook
            collapsed, or its training diverged.
    """
    check_finite(vectors, "vectors")
    _check_room(len(vectors), levels, codes)
    distinct = num_distinct(vectors, codes)
    num_codes = min(codes, max(distinct, math.ceil(len(vectors) ** (1 / levels) - 1e-9), 2))
    rest, encoder, trained = np.ascontiguousarray(vectors, np.float32), None, None
    if method == RQVAE:
        encoder, trained = train_rqvae(rest, levels, min(num_codes, distinct), seed)
        rest = encoder(rest)
    out, kept, use = np.zeros((len(rest), levels), np.int64), [], []
    places, moved = first_of_equal(vectors), 0
    for level in range(levels):
        if level == levels - 1:
            moved = make_room(out, num_codes)
        centroids, out[:, level] = (
            cluster(rest, min(num_codes, distinct), seed + level)
            if trained is None
            else (trained[level], nearest_centroid(rest, trained[level]))
        )
        use.append(level_use(out, level, len(centroids), places))
        kept.append(padded(centroids, num_codes))
        if level < levels - 1:
            rest = rest - centroids[out[:, level]]
    refuse_collapse(use)
    reassigned = spread(out, rest, kept[-1])
    return Codebook(out, num_codes, moved, reassigned, np.stack(kept), encoder, use)


def cluster(rows: Floats, num_codes: int, seed: int) -> tuple[Floats, Ints]:
    """k-means: centroids [≤ K, v] and the nearest of each row."""
    num_codes = num_distinct(rows, num_codes)
    kmeans = faiss.Kmeans(
        rows.shape[1], num_codes, niter=ITERATIONS, seed=seed, min_points_per_centroid=1, max_points_per_centroid=256
    )
    kmeans.train(rows)
    _, nearest = kmeans.index.search(rows, 1)
    assert kmeans.centroids is not None
    return kmeans.centroids, nearest.ravel()


def nearest_centroid(rows: Floats, centroids: Floats) -> Ints:
    """The nearest of ``centroids`` [K, w] for each of ``rows`` [N, w]."""
    index = faiss.IndexFlatL2(centroids.shape[1])
    index.add(np.ascontiguousarray(centroids, np.float32))
    return index.search(np.ascontiguousarray(rows, np.float32), 1)[1].ravel()


def _check_room(num_items: int, levels: int, codes: int) -> None:
    if num_items > codes**levels:
        raise DataError(
            "more items than semantic IDs",
            where="index.codes",
            value=num_items,
            mend="Raise index.codes or index.levels.",
        )
