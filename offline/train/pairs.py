"""Pairs of items of which a user preferred one, read from the kinds of events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline.histories import Histories
from schemas.names import Kind

Ints = NDArray[np.int64]
OVER = {Kind.PURCHASE.number: Kind.CLICK.number, Kind.CLICK.number: Kind.IMPRESSION.number}
"""Bought over clicked, clicked over shown."""
PER_WINNER = 4


@dataclass(frozen=True)
class Pairs:
    """Of each pair the winner's event (a place in the histories), and the numbers of both items."""

    place: Ints
    winner: Ints
    loser: Ints

    def __len__(self) -> int:
        return len(self.place)

    def only(self, kept: Ints) -> Pairs:
        """The pairs at ``kept``."""
        return Pairs(self.place[kept], self.winner[kept], self.loser[kept])


def find_pairs(histories: Histories, window: int) -> Pairs:
    """All pairs, in the order of the winners' events.

    An item stands in a session for the strongest thing the user did to it there. A winner (bought, or clicked at most)
    beats up to four of the same session's items that were only clicked (only shown), those seen last first. A loser
    that the user did more to within the ``window`` events after the session was only put off: it is no pair. Nor has
    a winner that begins the user's history one: there is nothing to ask from.
    """
    hopeful = np.unique(histories.session[np.isin(histories.kind, list(OVER.values()))])  # they hold a loser
    begin, end = (np.searchsorted(histories.session, hopeful, side) for side in ("left", "right"))
    user_end = histories.start[1:][histories.user[begin]]
    found: list[tuple[int, int, int]] = []
    for first, last, stop in zip(begin.tolist(), end.tolist(), user_end.tolist(), strict=True):
        found += _of_session(histories, first, last, slice(last, min(last + window, stop)))
    begins = set(histories.start.tolist())
    rows = np.array([row for row in found if row[0] not in begins], np.int64).reshape(-1, 3)
    return Pairs(*rows.T)


def _of_session(histories: Histories, begin: int, end: int, later: slice) -> list[tuple[int, int, int]]:
    """Winner's place, winner and loser, of the session at ``begin`` … ``end`` - 1."""
    strongest: dict[int, tuple[int, int]] = {}  # of each item its kind, and where it was done first
    seen: dict[int, int] = {}
    for place in range(begin, end):
        item, kind = int(histories.item[place]), int(histories.kind[place])
        seen[item] = place
        if kind > strongest.get(item, (0, 0))[0]:
            strongest[item] = (kind, place)
    afterwards: dict[int, int] = {}
    for item, kind in zip(histories.item[later].tolist(), histories.kind[later].tolist(), strict=True):
        afterwards[item] = max(kind, afterwards.get(item, 0))
    pairs = []
    for item, (kind, place) in sorted(strongest.items(), key=lambda one: one[1][1]):
        wanted = OVER.get(kind)
        losers = [
            other for other, (less, _) in strongest.items() if less == wanted and afterwards.get(other, 0) <= less
        ]
        losers = sorted(losers, key=lambda other: -seen[other])[:PER_WINNER]
        pairs += [(place, item, other) for other in losers]
    return pairs
