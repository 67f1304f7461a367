"""What of a partition is still to be encoded again, as the committed offset's label tells it.

When the releases change, new windows go on at once with the new ones, and what was encoded before is read again beside
them, the newest first. Which offsets are left, and what encoded them before, is kept with the partition's offset: so a
worker that takes over goes on where the one before was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from schemas.canary import Split, read_split

NOBODY = Split("")
"""What encoded a record whose state is lost or not known: it is encoded again, whatever it was encoded by."""
MAX_RANGES = 16
"""A label is at most some hundred bytes: with more ranges they become one, of which nothing is known."""


MAX_BEFORE = 4
Before = tuple[Split, ...]


class Range(NamedTuple):
    """Offsets ``start`` … ``end - 1``, and what may have encoded them: a worker that is killed leaves some of each."""

    start: int
    end: int
    before: Before


Left = tuple[Range, ...]
"""In order, without overlaps or empty ones."""


def changed(left: Left, end: int, before: Split) -> Left:
    """Everything below ``end`` is to be encoded again; what was not left is of ``before``."""
    found, at = list[Range](), 0
    for one in begun(left, before):
        found += [Range(at, one.start, (before,)), one]
        at = one.end
    return _tidy([*found, Range(at, end, (before,))])


def begun(left: Left, split: Split) -> Left:
    """Of what is left some may be of ``split`` by now."""
    return tuple(Range(one.start, one.end, _also(one.before, split)) for one in left)


def _also(before: Before, split: Split) -> Before:
    if split in before or NOBODY in before:
        return before
    return (*before, split) if len(before) < MAX_BEFORE else (NOBODY,)


def lost(left: Left, start: int, end: int) -> Left:
    """The states of these offsets are gone as well."""
    below = [Range(one.start, min(one.end, start), one.before) for one in left]
    above = [Range(max(one.start, end), one.end, one.before) for one in left]
    return _tidy([*below, Range(start, end, (NOBODY,)), *above])


def without(left: Left, start: int) -> Left:
    """From ``start`` on it is done."""
    return _tidy(Range(one.start, min(one.end, start), one.before) for one in left)


def count(left: Left) -> int:
    """How many offsets."""
    return sum(one.end - one.start for one in left)


def label(split: Split, left: Left) -> str:
    """The text to commit; ``read_label`` reads it back."""
    return ";".join([str(split), *(f"{one.start}-{one.end}:{'|'.join(map(str, one.before))}" for one in left)])


def read_label(text: str) -> tuple[Split, Left]:
    """What ``label`` gave. A range that is none makes everything unknown: then all is encoded again."""
    split, *parts = text.split(";")
    try:
        return read_split(split), _tidy(_range(part) for part in parts)
    except ValueError:
        return NOBODY, ()


def _range(text: str) -> Range:
    places, _, before = text.partition(":")
    start, _, end = places.partition("-")
    return Range(int(start), int(end), tuple(read_split(one) for one in before.split("|")))


def _tidy(ranges: Iterable[Range]) -> Left:
    found = list[Range]()
    for one in ranges:
        if one.start >= one.end:
            continue
        if found and found[-1].end == one.start and found[-1].before == one.before:
            found[-1] = Range(found[-1].start, one.end, one.before)
        else:
            found.append(one)
    if len(found) > MAX_RANGES:
        return (Range(found[0].start, found[-1].end, (NOBODY,)),)
    return tuple(found)
