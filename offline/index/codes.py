"""Semantic IDs: residual k-means, the last level assigned inside each prefix so that no two items share one."""

from __future__ import annotations

from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from offline.index.vectors import check_finite
from schemas.errors import DataError

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
ITERATIONS = 15


@dataclass(frozen=True)
class Codebook:
    """``codes`` [N, L], unique. ``num_codes`` is what was used of the codes asked for; ``moved`` counts items that
    left a prefix because it was full, ``reassigned`` those that share a nearest last code with another."""

    codes: Ints
    num_codes: int
    moved: int
    reassigned: int


def build_codes(vectors: Floats, levels: int, codes: int, seed: int) -> Codebook:
    """Codes of every item.

    With few distinct vectors there are fewer codes than asked for: as many as distinct vectors, but always enough
    that ``codes ** levels`` items have room. Overflow: a prefix that more items chose than there are last codes
    keeps the first of them; each of the others goes to the emptiest prefix that shares most of the path.

    Raises:
        DataError: a vector is not finite (its row is named), or there are more items than semantic IDs.
    """
    check_finite(vectors, "vectors")
    num_items = len(vectors)
    if num_items > codes**levels:
        raise DataError(
            "more items than semantic IDs",
            where="index.codes",
            value=num_items,
            mend="Raise index.codes or index.levels.",
        )
    distinct = len(np.unique(vectors, axis=0))
    num_codes = min(codes, max(distinct, int(np.ceil(num_items ** (1 / levels) - 1e-9)), 2))
    out = np.zeros((num_items, levels), np.int64)
    rest = np.ascontiguousarray(vectors, np.float32)
    for level in range(levels - 1):
        centroids, out[:, level] = cluster(rest, min(num_codes, distinct), seed + level)
        rest = rest - centroids[out[:, level]]
    moved = _make_room(out, num_codes)
    centroids, nearest = cluster(rest, min(num_codes, distinct), seed + levels - 1)
    out[:, -1] = nearest
    reassigned = _spread(out, rest, _padded(centroids, num_codes))
    return Codebook(out, num_codes, moved, reassigned)


def cluster(rows: Floats, num_codes: int, seed: int) -> tuple[Floats, Ints]:
    """k-means: centroids [K, v] and the nearest of each row."""
    num_codes = min(num_codes, len(np.unique(rows, axis=0)))
    kmeans = faiss.Kmeans(
        rows.shape[1], num_codes, niter=ITERATIONS, seed=seed, min_points_per_centroid=1, max_points_per_centroid=256
    )
    kmeans.train(rows)
    _, nearest = kmeans.index.search(rows, 1)
    assert kmeans.centroids is not None
    return kmeans.centroids, nearest.ravel()


def _make_room(codes: Ints, num_codes: int) -> int:
    """Move items out of prefixes that hold more than ``num_codes``; the last of them go, to the emptiest prefix that
    shares most of the path."""
    prefixes = codes[:, :-1]
    groups: dict[tuple[int, ...], list[int]] = {}
    for item, prefix in enumerate(map(tuple, prefixes.tolist())):
        groups.setdefault(prefix, []).append(item)
    moved = 0
    for prefix in [prefix for prefix, members in groups.items() if len(members) > num_codes]:
        members = groups[prefix]
        extra, groups[prefix] = members[num_codes:], members[:num_codes]
        for item in extra:
            place = _roomiest(groups, prefix, num_codes)
            groups.setdefault(place, []).append(item)
            prefixes[item] = place
            moved += 1
    return moved


def _roomiest(groups: dict[tuple[int, ...], list[int]], prefix: tuple[int, ...], num_codes: int) -> tuple[int, ...]:
    """The nearest prefix with room: change the last code first, then the ones before it."""
    for depth in range(len(prefix) - 1, -1, -1):
        near = [(*prefix[:depth], code, *prefix[depth + 1 :]) for code in range(num_codes)]
        room = [place for place in near if len(groups.get(place, ())) < num_codes]
        if room:
            return min(room, key=lambda place: (len(groups.get(place, ())), place))
    whole = np.ndindex(*(num_codes,) * len(prefix))
    return next(place for place in whole if len(groups.get(place, ())) < num_codes)


def _spread(codes: Ints, rest: Floats, centroids: Floats) -> int:
    """Give the members of each prefix different last codes at the least total distance."""
    _, group, size = np.unique(codes[:, :-1], axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    reassigned = 0
    for members in np.split(order, np.cumsum(size)[:-1]):
        last = codes[members, -1]
        if len(np.unique(last)) == len(members):
            continue
        distance = ((rest[members][:, None] - centroids[None]) ** 2).sum(-1)
        rows, chosen = linear_sum_assignment(distance)
        reassigned += int((codes[members[rows], -1] != chosen).sum())
        codes[members[rows], -1] = chosen
    return reassigned


def _padded(centroids: Floats, num_codes: int) -> Floats:
    """Codes without a centroid of their own are as far as the furthest: used last."""
    missing = num_codes - len(centroids)
    far = np.full((max(0, missing), centroids.shape[1]), np.abs(centroids).max() * 2 + 1, np.float32)
    return np.concatenate([centroids, far])
