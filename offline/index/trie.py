"""The trie of the semantic IDs, as flat arrays (``schemas.graphs``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schemas.errors import DataError

Ints = NDArray[np.int64]
WORD = 64
"""Categories of one word of bits."""


def sid_order(codes: Ints) -> Ints:
    """The order that makes item numbers follow the semantic IDs [N, L]."""
    return np.lexsort(codes.T[::-1])


def trie_arrays(codes: Ints) -> dict[str, Ints]:
    """``offset_l``, ``child_l``, ``fan_l``, ``item_codes`` and ``item_path`` of unique codes [N, L] in SID order.

    Raises:
        DataError: the codes are not in order, or two items share all of them.
    """
    num_items, levels = codes.shape
    before = np.zeros(num_items, np.int64)
    num_before = 1
    arrays: dict[str, Ints] = {"item_codes": codes}
    path: list[Ints] = []
    for level in range(levels):
        path.append(before)
        new = np.ones(num_items, bool)
        new[1:] = (before[1:] != before[:-1]) | (codes[1:, level] != codes[:-1, level])
        first = np.flatnonzero(new)
        arrays[f"child_{level}"] = codes[first, level]
        arrays[f"offset_{level}"] = np.searchsorted(before[first], np.arange(num_before + 1)).astype(np.int64)
        arrays[f"fan_{level}"] = np.arange(np.diff(arrays[f"offset_{level}"]).max(), dtype=np.int64)
        before = np.cumsum(new) - 1
        num_before = len(first)
    if num_before != num_items or (sid_order(codes) != np.arange(num_items)).any():
        raise DataError(
            "semantic IDs must be unique and in order",
            where="codes",
            value=f"{num_before} distinct of {num_items}",
            mend="Build the index again.",
        )
    return arrays | {"item_path": np.stack(path, axis=1)}


def category_sets(path: Ints, category: Ints) -> dict[str, Ints]:
    """``set_l`` and ``category_sets`` (``schemas.graphs``) of items with ``item_path`` [N, L] and categories [N].

    A set is kept once however many nodes have it: deep in the trie most nodes hold one category.
    """
    num_words = int(category.max(initial=0)) // WORD + 1
    bit = np.left_shift(np.uint64(1), (category % WORD).astype(np.uint64))
    depths = path.T[1:]
    held = [np.zeros((int(node.max()) + 1, num_words), np.uint64) for node in depths]
    for words, node in zip(held, depths, strict=True):
        np.bitwise_or.at(words, (node, category // WORD), bit)
    every = np.concatenate([*held, np.zeros((1, num_words), np.uint64)])
    sets, row = np.unique(every, axis=0, return_inverse=True)
    ends = np.cumsum([len(words) for words in held])
    rows = np.split(row.reshape(-1).astype(np.int64), ends)
    return {f"set_{level}": rows[level] for level in range(len(held))} | {"category_sets": sets.view(np.int64)}
