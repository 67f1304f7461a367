"""A release's large tables, read and dropped in pieces.

A table of millions of rows that is decoded in one call keeps the interpreter from the event loop for as long as that
takes, some hundred milliseconds, and so does the growth of a large dict, or its end. Here each step is of ``PIECE``
rows, a fraction of a millisecond, and between two of them whoever waits is let in.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from schemas.release import Catalogue, Profiles

PIECE = 2048
UNUSED_BITS = 24
"""Of a hash: a dict places its keys by the lowest bits, so others choose the dict."""
Reader = Callable[[bytes, int], tuple[Any, int]]
"""From the place where a value begins in the file, the value and where it ends."""

# msgpack: the tag of a short array or map holds the count; after the two tags of long ones come 2 or 4 bytes of it.
ARRAY, ARRAY_16, MAP, MAP_16 = 0x90, 0xDC, 0x80, 0xDE
SHORT = 16
SIZES = {
    **dict.fromkeys([*range(0x80), *range(0xE0, 0x100)], 1),  # small integers
    **{0xA0 + length: 1 + length for length in range(32)},  # short strings
    **{tag + power: 1 + 2**power for tag in (0xCC, 0xD0) for power in range(4)},  # unsigned and signed integers
}
"""Bytes of a string or an integer whose tag tells it, the tag included."""
LENGTHS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes of the length of a longer string, by its tag."""


class Names(Mapping[str, int]):
    """A number for each of up to many millions of names. Of names that come twice the last number holds.

    Args:
        count: about how many there will be; more only make it slower to grow.
    """

    __slots__ = ("_mask", "_parts")

    def __init__(self, pairs: Iterable[tuple[str, int]], count: int) -> None:
        num_parts = 1 << (count // PIECE).bit_length()
        self._mask = num_parts - 1
        self._parts: list[dict[str, int]] = [{} for _ in range(num_parts)]
        parts, mask = self._parts, self._mask
        for name, number in pairs:
            parts[hash(name) >> UNUSED_BITS & mask][name] = number

    def __getitem__(self, name: str) -> int:
        return self._parts[hash(name) >> UNUSED_BITS & self._mask][name]

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dict."""
        return self._parts[hash(name) >> UNUSED_BITS & self._mask].get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._parts[hash(name) >> UNUSED_BITS & self._mask]

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __del__(self) -> None:
        while self._parts:
            self._parts.pop()


class Rows(list[str]):
    """A long list that ends in pieces."""

    __slots__ = ()

    def __del__(self) -> None:
        while self:
            del self[-PIECE:]


@dataclass(frozen=True, slots=True)
class Known:
    """``schemas.release.Profiles``, its users in pieces."""

    buckets: list[str]
    users: Names


def numbered(names: list[str]) -> Names:
    """Each name's place."""
    return Names(zip(names, range(len(names)), strict=True), len(names))


def read_catalogue(raw: bytes) -> Catalogue:
    """``msgspec.msgpack.decode(raw, type=Catalogue)`` in pieces. Raises ``msgspec.DecodeError`` as that does."""
    found = _fields(raw, {"item_ids": _strings, "titles": _strings, "categories": _strings})
    return Catalogue(**found) if found else msgspec.msgpack.decode(raw, type=Catalogue)


def read_profiles(raw: bytes) -> Known:
    """``msgspec.msgpack.decode(raw, type=Profiles)`` in pieces. Raises ``msgspec.DecodeError`` as that does."""
    found = _fields(raw, {"buckets": _strings, "users": _names})
    if found:
        return Known(**found)
    plain = msgspec.msgpack.decode(raw, type=Profiles)
    return Known(plain.buckets, Names(plain.users.items(), len(plain.users)))


@contextmanager
def unwalked() -> Generator[None]:
    """What is made inside is never walked by the garbage collector.

    A list of a million names takes it tens of milliseconds, again and again, from when it begins to grow. It holds no
    cycle: when the release is unloaded its references free it.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def _fields(raw: bytes, readers: Mapping[str, Reader]) -> dict[str, Any] | None:
    """A struct of just these fields; None when it is damaged or written in a way that is unusual."""
    found: dict[str, Any] = {}
    try:
        count, at = _count(raw, 0, MAP, MAP_16)
        for _ in range(count):
            end = _end(raw, at, 1)
            name = msgspec.msgpack.decode(raw[at:end], type=str)
            found[name], at = readers[name](raw, end)
    except (LookupError, msgspec.DecodeError):
        return None
    return found if at == len(raw) and found.keys() == readers.keys() else None


def _strings(raw: bytes, at: int) -> tuple[Rows, int]:
    count, at = _count(raw, at, ARRAY, ARRAY_16)
    decode = msgspec.msgpack.Decoder(list[str]).decode
    rows = Rows()
    while len(rows) < count:
        num = min(PIECE, count - len(rows))
        end = _end(raw, at, num)
        rows += decode(_head(ARRAY_16, num) + raw[at:end])
        at = end
    return rows, at


def _names(raw: bytes, at: int) -> tuple[Names, int]:
    count, at = _count(raw, at, MAP, MAP_16)
    decode = msgspec.msgpack.Decoder(dict[str, int]).decode

    def pairs() -> Iterator[tuple[str, int]]:
        nonlocal at
        for begun in range(0, count, PIECE):
            num = min(PIECE, count - begun)
            end = _end(raw, at, 2 * num)
            yield from decode(_head(MAP_16, num) + raw[at:end]).items()
            at = end

    return Names(pairs(), count), at


def _head(tag_16: int, count: int) -> bytes:
    return bytes([tag_16]) + count.to_bytes(2, "big")


def _count(raw: bytes, at: int, short: int, tag_16: int) -> tuple[int, int]:
    """Of an array or a map: how many there are, and where the first begins."""
    tag = raw[at]
    if short <= tag < short + SHORT:
        return tag - short, at + 1
    width = {tag_16: 2, tag_16 + 1: 4}[tag]
    count = int.from_bytes(raw[at + 1 : at + 1 + width], "big")
    if count > len(raw):
        raise LookupError(count)
    return count, at + 1 + width


def _end(raw: bytes, at: int, count: int) -> int:
    """Where ``count`` strings and integers end; beyond ``raw`` when it is too short. Raises LookupError."""
    sizes = SIZES
    for _ in range(count):
        tag = raw[at]
        if tag in sizes:
            at += sizes[tag]
        else:
            width = LENGTHS[tag]
            at += 1 + width + int.from_bytes(raw[at + 1 : at + 1 + width], "big")
    return at
