"""``lineage.msgpack``: how the items of a release grown by insertion are numbered in those it grew from.

Graphs, semantic IDs and the rows of old items are the same in all of a family, so a state made with an ancestor is as
good as one made with the release itself, once its item numbers are those of the release. Only what changed is kept:
a release of a million items after a hundred insertions has a lineage of some kilobytes.

Numbers follow the semantic IDs; withdrawn items have the numbers behind all others, so none of them is a leaf of the
trie. A *rank* is the place of an item among all items by semantic ID, withdrawn ones included. A *serial* is the same
in the whole family: of the first release's items their numbers there, then the inserted ones in the order they came.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from schemas.errors import ReleaseError

LINEAGE = "lineage.msgpack"


class Step(msgspec.Struct, frozen=True, array_like=True):
    """An ancestor: how many items were inserted by then, and which were withdrawn or came back since the one before."""

    release: str
    num_inserted: int
    withdrawn: list[int] = []  # serials
    back: list[int] = []  # serials


class Lineage(msgspec.Struct, frozen=True):
    """Of one release. The first step is the release that a build made, the last one the parent."""

    base_items: int  # of the release that a build made
    inserted: list[int]  # rank of each inserted item, in the order they came
    withdrawn: list[int]  # serials of what is withdrawn now
    steps: list[Step]


def read_lineage(raw: bytes, where: str) -> Lineage:
    """Raises ``ReleaseError`` when ``raw`` is none."""
    try:
        return msgspec.msgpack.decode(raw, type=Lineage)
    except msgspec.DecodeError as error:
        raise ReleaseError(f"damaged: {error}", where=where, mend="Publish the release again.") from None


class Family:
    """The numbers of all ancestors' items as this release has them. Safe to use from several threads."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self._shift = _shifts(lineage.inserted)
        self._gone = sorted(self._rank(serial) for serial in lineage.withdrawn)
        self.num_items = lineage.base_items + len(lineage.inserted)
        self.num_live = self.num_items - len(self._gone)
        self._place = {step.release: place for place, step in enumerate(lineage.steps)}
        self._known: dict[str, _Numbering] = {}

    @property
    def ancestors(self) -> frozenset[str]:
        """The releases whose states, lists and prompts this one takes over."""
        return frozenset(self._place)

    def numbers(self, ancestor: str, numbers: Iterable[int]) -> list[int]:
        """Item numbers of an ancestor as this release has them; -1 for what is no item there.

        A number of ``num_live`` or above is a withdrawn item: it may be in a history, but never in an answer.

        Raises:
            KeyError: it is no ancestor.
        """
        known = self._known.get(ancestor)
        if known is None:
            known = self._known[ancestor] = self._numbering(self._place[ancestor])
        return [self._number(known.rank(number)) for number in numbers]

    def _numbering(self, place: int) -> _Numbering:
        gone = set[int]()
        for step in self._lineage.steps[: place + 1]:
            gone |= set(step.withdrawn)
            gone -= set(step.back)
        later = self._lineage.inserted[self._lineage.steps[place].num_inserted :]
        return _Numbering(sorted(self._rank(serial) for serial in gone), later, self.num_items)

    def _rank(self, serial: int) -> int:
        base = self._lineage.base_items
        return self._lineage.inserted[serial - base] if serial >= base else _beside(self._shift, serial)

    def _number(self, rank: int) -> int:
        if rank < 0:
            return -1
        before = bisect_left(self._gone, rank)
        withdrawn = before < len(self._gone) and self._gone[before] == rank
        return self.num_live + before if withdrawn else rank - before


class _Numbering:
    """From an ancestor's numbers to ranks in the release."""

    def __init__(self, gone: list[int], later: Sequence[int], num_items: int) -> None:
        self._gone = gone
        self._shift = _shifts([*gone, *later])
        self._num_live = num_items - len(self._shift)

    def rank(self, number: int) -> int:
        if 0 <= number < self._num_live:
            return _beside(self._shift, number)
        place = number - self._num_live
        return self._gone[place] if 0 <= place < len(self._gone) else -1


def _shifts(places: Iterable[int]) -> list[int]:
    """Of taken places: how many free ones lie before each."""
    return [place - taken for taken, place in enumerate(sorted(places))]


def _beside(shifts: Sequence[int], number: int) -> int:
    """The ``number``-th free place."""
    return number + bisect_right(shifts, number)
