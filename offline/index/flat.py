"""The semantic index as flat files: semantic ID ↔ item number ↔ item id, memory-mapped.

::

    offset_l, child_l, fan_l, item_codes, item_path    the trie (``schemas.graphs``)
    id_bytes uint8, id_start int64 [N + 1]             the ids, one after the other, in UTF-8, by item number
    id_hash uint64 [N], id_number int64 [N]            hashes of the ids in order, and whose they are
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offline.index.trie import sid_order, trie_arrays
from schemas.errors import DataError

Ints = NDArray[np.int64]
Arrays = dict[str, NDArray[np.generic]]


class SemanticIndex:
    """Looks up in arrays that ``build`` made. Costs no memory but the pages that are read."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.codes: Ints = arrays["item_codes"]  # type: ignore[assignment]
        self.levels = self.codes.shape[1]

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def open(cls, folder: Path) -> SemanticIndex:
        """Map what ``write`` wrote."""
        return cls({path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))})

    def write(self, folder: Path) -> int:
        """Write the arrays; returns their bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self.arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        return sum(path.stat().st_size for path in folder.glob("*.npy"))

    def under(self, prefix: Sequence[int]) -> range:
        """The numbers of all items whose semantic ID begins with ``prefix``; an empty range when there are none."""
        begin, end = 0, 1
        for level in range(self.levels):
            offset = self.arrays[f"offset_{level}"]
            begin, end = int(offset[begin]), int(offset[end])
            if level < len(prefix):
                child = self.arrays[f"child_{level}"][begin:end]
                at = int(np.searchsorted(child, prefix[level]))
                if at == len(child) or child[at] != prefix[level]:
                    return range(0)
                begin, end = begin + at, begin + at + 1
        return range(begin, end)

    def children(self, prefix: Sequence[int]) -> Ints:
        """The codes that follow ``prefix``, in order."""
        found = self.under(prefix)
        if not found or len(prefix) == self.levels:
            return np.zeros(0, np.int64)
        codes = self.codes[found.start : found.stop, len(prefix)]
        return codes[np.r_[True, codes[1:] != codes[:-1]]]

    def number_of(self, item_id: str) -> int | None:
        """The item's number, or None when the index does not hold it."""
        wanted, hashes = _hash(item_id), self.arrays["id_hash"]
        at = int(np.searchsorted(hashes, np.uint64(wanted)))
        while at < len(hashes) and int(hashes[at]) == wanted:
            number = int(self.arrays["id_number"][at])
            if self.item_id(number) == item_id:
                return number
            at += 1
        return None

    def item_id(self, number: int) -> str:
        """The id of an item number."""
        begin, end = self.arrays["id_start"][number : number + 2]
        return self.arrays["id_bytes"][begin:end].tobytes().decode()


def build(codes: Ints, item_ids: list[str]) -> tuple[SemanticIndex, Ints]:
    """The index of unique ``codes`` [N, L] in any order, and the order that gave the items their numbers.

    Raises:
        DataError: two items share all codes, or an id comes twice.
    """
    order = sid_order(codes)
    ids = id_arrays([item_ids[place] for place in order.tolist()])
    return SemanticIndex({**trie_arrays(codes[order]), **ids}), order


def id_arrays(ids: list[str]) -> Arrays:
    """The arrays of the ids, by item number. Raises ``DataError`` when one comes twice."""
    hashes = np.fromiter(map(_hash, ids), np.uint64, len(ids))
    by_hash = np.argsort(hashes, kind="stable").astype(np.int64)
    _refuse_twice(ids, hashes, by_hash)
    raw = [item_id.encode() for item_id in ids]
    return {
        "id_bytes": np.frombuffer(b"".join(raw), np.uint8),
        "id_start": np.r_[0, np.cumsum(np.fromiter(map(len, raw), np.int64, len(raw)))],
        "id_hash": hashes[by_hash],
        "id_number": by_hash,
    }


def _refuse_twice(ids: Sequence[str], hashes: NDArray[np.uint64], by_hash: Ints) -> None:
    same = np.flatnonzero(hashes[by_hash][1:] == hashes[by_hash][:-1])
    for at in same.tolist():
        if (item_id := ids[by_hash[at]]) == ids[by_hash[at + 1]]:
            raise DataError("an item id comes twice", where="item_id", value=item_id, mend="Keep one of them.")


def _hash(item_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(item_id.encode(), digest_size=8).digest(), "little")
