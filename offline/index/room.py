"""Room for every item: no two share a semantic ID, and no prefix holds more items than there are last codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Prefix = tuple[int, ...]


def make_room(codes: Ints, num_codes: int) -> int:
    """Move items out of prefixes that hold more than ``num_codes``; the last of them go, to the emptiest prefix that
    shares most of the path. Changes ``codes`` [N, L]; returns how many moved."""
    prefixes = codes[:, :-1]
    groups: dict[Prefix, list[int]] = {}
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


def _roomiest(groups: dict[Prefix, list[int]], prefix: Prefix, num_codes: int) -> Prefix:
    """The nearest prefix with room: change the last code first, then the ones before it."""
    for depth in range(len(prefix) - 1, -1, -1):
        near = [(*prefix[:depth], code, *prefix[depth + 1 :]) for code in range(num_codes)]
        room = [place for place in near if len(groups.get(place, ())) < num_codes]
        if room:
            return min(room, key=lambda place: (len(groups.get(place, ())), place))
    whole = np.ndindex(*(num_codes,) * len(prefix))
    return next(place for place in whole if len(groups.get(place, ())) < num_codes)


def spread(codes: Ints, rest: Floats, centroids: Floats) -> int:
    """Give the members of each prefix different last codes at the least total distance; returns how many changed.

    ``rest`` [N, v] is what the codes before the last leave over, ``centroids`` [K, v] the last level's.
    """
    reassigned = 0
    for members in _crowded(codes):
        distance = cdist(rest[members], centroids, "sqeuclidean")
        rows, chosen = linear_sum_assignment(distance)
        reassigned += int((codes[members[rows], -1] != chosen).sum())
        codes[members[rows], -1] = chosen
    return reassigned


def _crowded(codes: Ints) -> list[Ints]:
    """The members, by place, of each prefix in which two items share the last code."""
    order = np.lexsort(codes.T[::-1])
    ordered = codes[order]
    same_prefix = (ordered[1:, :-1] == ordered[:-1, :-1]).all(1)
    again = same_prefix & (ordered[1:, -1] == ordered[:-1, -1])
    group = np.r_[0, np.cumsum(~same_prefix)]
    begin = np.flatnonzero(np.r_[True, ~same_prefix])
    end = np.r_[begin[1:], len(order)]
    return [np.sort(order[begin[one] : end[one]]) for one in np.unique(group[1:][again])]


def padded(centroids: Floats, num_codes: int) -> Floats:
    """Codes without a centroid of their own are further than any other: used last."""
    missing = num_codes - len(centroids)
    far = np.full((max(0, missing), centroids.shape[1]), np.abs(centroids).max() * 2 + 1, np.float32)
    return np.concatenate([centroids, far])
