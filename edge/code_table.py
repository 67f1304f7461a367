"""Item id → codes, compact: hashes instead of ids, in shards. Every SDK reads this format.

A shard is little-endian::

    b"BHC1" | levels u8 | bytes per code u8 (1 or 2) | 0 u16 | count u32 | 0 u32 | hashes u64 [count], ascending
    | codes u8 or u16 [count, levels], in the order of the hashes

The hash is 64-bit FNV-1a of the id's UTF-8. Shard 0 holds the most popular items; an item that it lacks can only be
in shard 1 + ``spread32`` of the hash mod the number of tail shards. Two items of one hash are refused when the table
is made. An id that the catalogue lacks finds another's codes by chance: one in 10^13 for a million items.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.bundle import BundleError
from edge.names import BundleReason
from schemas.errors import DataError

MAGIC = b"BHC1"
HEADER = struct.Struct("<4sBBHII")
HASH_BYTES = 8
HEAD = 0
_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 0xFFFFFFFFFFFFFFFF


def item_hash(item_id: str) -> int:
    """64-bit FNV-1a of the UTF-8 bytes.

    >>> hex(item_hash("a"))
    '0xaf63dc4c8601ec8c'
    """
    value = _OFFSET
    for byte in item_id.encode():
        value = ((value ^ byte) * _PRIME) & _MASK
    return value


def spread32(hashed: int) -> int:
    """32 evenly spread bits of a hash: FNV alone leaves the upper bits of similar ids alike (murmur's finaliser)."""
    mixed = (hashed ^ (hashed >> 32)) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)


def tail_shard(hashed: int, tail_shards: int) -> int:
    """The shard of an item that shard 0 lacks; 0 when there is no other."""
    return 1 + spread32(hashed) % tail_shards if tail_shards else HEAD


def make_shards(
    item_ids: Sequence[str], codes: NDArray[np.int64], popular: Sequence[int], num_codes: int, shard_bytes: int
) -> list[bytes]:
    """The shards, each of about ``shard_bytes`` at most (the tail's vary, for the hash deals the items out).

    Args:
        item_ids: by item number.
        codes: int64 [N, L], each in 0 … ``num_codes`` - 1.
        popular: all item numbers, best first.

    Raises:
        DataError: two items of one hash.
    """
    hashes = np.array([item_hash(item_id) for item_id in item_ids], np.uint64)
    _refuse_collisions(item_ids, hashes)
    code_bytes = 1 if num_codes <= 256 else 2
    room = max(1, (shard_bytes - HEADER.size) // (HASH_BYTES + codes.shape[1] * code_bytes))
    order = np.asarray(popular, np.int64)
    head, tail = order[:room], order[room:]
    tail_shards = -(-len(tail) // room)
    dealt = np.array([tail_shard(int(value), tail_shards) for value in hashes[tail]], np.int64)
    members = [head, *(tail[dealt == number] for number in range(1, tail_shards + 1))]
    return [_shard(hashes[numbers], codes[numbers], code_bytes) for numbers in members]


def _refuse_collisions(item_ids: Sequence[str], hashes: NDArray[np.uint64]) -> None:
    order = np.argsort(hashes, kind="stable").tolist()
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1]).tolist()
    if same:
        pair = (item_ids[order[same[0]]], item_ids[order[same[0] + 1]])
        raise DataError("two items of one hash", where="catalogue", value=pair, mend="Rename or drop one of them.")


def _shard(hashes: NDArray[np.uint64], codes: NDArray[np.int64], code_bytes: int) -> bytes:
    order = np.argsort(hashes)
    head = HEADER.pack(MAGIC, codes.shape[1], code_bytes, 0, len(hashes), 0)
    return head + hashes[order].astype("<u8").tobytes() + codes[order].astype(f"<u{code_bytes}").tobytes()


class Shard:
    """One shard, read in place.

    Raises:
        BundleError: CORRUPT, when ``raw`` is not a shard of ``levels`` levels.
    """

    def __init__(self, raw: bytes, levels: int, where: str) -> None:
        try:
            magic, given_levels, code_bytes, _, count, _ = HEADER.unpack_from(raw)
        except struct.error:
            raise BundleError(BundleReason.CORRUPT, "cut short", where=where, value=len(raw)) from None
        size = HEADER.size + count * (HASH_BYTES + levels * code_bytes)
        if magic != MAGIC or given_levels != levels or code_bytes not in (1, 2) or len(raw) != size:
            raise BundleError(BundleReason.CORRUPT, "not a shard of the code table", where=where, value=raw[:16])
        self._hashes = np.frombuffer(raw, "<u8", count, HEADER.size)
        self._codes = np.frombuffer(raw, f"<u{code_bytes}", offset=HEADER.size + count * HASH_BYTES)
        self._codes = self._codes.reshape(count, levels)

    def __len__(self) -> int:
        return len(self._hashes)

    def find(self, hashed: int) -> NDArray[np.int64] | None:
        """The codes, int64 [L], or None."""
        at = int(np.searchsorted(self._hashes, np.uint64(hashed)))
        return self._codes[at].astype(np.int64) if at < len(self._hashes) and self._hashes[at] == hashed else None


class CodeTable:
    """The codes of a bundle, from all of its shards. An SDK loads the tail's shards as they are asked for."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def __call__(self, item_id: str, /) -> NDArray[np.int64] | None:
        """The item's codes, int64 [L], or None when the bundle does not have the item."""
        hashed = item_hash(item_id)
        found = self._shards[HEAD].find(hashed)
        number = tail_shard(hashed, len(self._shards) - 1)
        return self._shards[number].find(hashed) if found is None and number else found
