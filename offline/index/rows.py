"""Equal rows of a large matrix, without sorting it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
CHUNK = 65_536


def first_of_equal(rows: Floats) -> Ints:
    """The place of the first of each group of equal rows, by place."""
    _, first = np.unique(_fingerprints(rows), return_index=True)
    return np.sort(first)


def num_distinct(rows: Floats, at_most: int) -> int:
    """How many rows differ; counting stops at ``at_most``."""
    begin = num = 0
    seen: NDArray[np.uint64] = np.zeros(0, np.uint64)
    while begin < len(rows) and num < at_most:
        seen = np.union1d(seen, _fingerprints(rows[begin : begin + CHUNK]))
        begin, num = begin + CHUNK, len(seen)
    return min(num, at_most)


def _fingerprints(rows: Floats) -> NDArray[np.uint64]:
    """A 64-bit hash of each row's bits; -0 counts as 0. Not a product in floats: it may round equal rows apart."""
    odd = np.random.default_rng(0).integers(0, 1 << 63, rows.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    parts = [
        ((rows[begin : begin + CHUNK] + np.float32(0)).astype(np.float32).view(np.uint32) * odd).sum(1, dtype=np.uint64)
        for begin in range(0, len(rows), CHUNK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
