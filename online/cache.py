"""Stored values kept in process memory, bounded in bytes, dropped when the worker says that a user has changed."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

from online.deadline import Clock

LIFETIME_S = 60.0
"""Bounds what a lost invalidation can cost, and brings in candidates, whose writes are not announced."""
OVERHEAD_BYTES = 400
"""Of one entry beside its values: the key, the objects, the table."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A user's two values as Redis holds them; None where the key is absent."""

    state: bytes | None
    candidates: bytes | None


class Cache:
    """Least recently used goes first. Not thread-safe: one event loop uses it.

    It answers ``fresh`` only while ``live``, that is while the subscription that invalidates it is up.
    A read that was under way when its user changed is not kept: its value may be the old one.
    """

    def __init__(self, max_bytes: int, clock: Clock = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[str, tuple[Pair, float]] = OrderedDict()
        self._reading: dict[str, int] = {}
        self._changed: set[str] = set()
        self.num_bytes = 0
        self.live = False

    def __len__(self) -> int:
        return len(self._entries)

    def fresh(self, user_id: str) -> Pair | None:
        """What is known of a user, if it can be trusted to be what Redis holds."""
        entry = self._entries.get(user_id) if self.live else None
        if entry is None or self._clock() - entry[1] > LIFETIME_S:
            return None
        self._entries.move_to_end(user_id)
        return entry[0]

    def last_resort(self, user_id: str) -> Pair | None:
        """What was known last, for when the store can't be asked. Its age is judged like that of any other value."""
        entry = self._entries.get(user_id)
        return entry[0] if entry else None

    def begin_read(self, user_id: str) -> None:
        """A read of this user starts; pair it with ``end_read``."""
        self._reading[user_id] = self._reading.get(user_id, 0) + 1

    def end_read(self, user_id: str, pair: Pair | None) -> None:
        """The read ended, with None when it failed. Kept unless the user changed meanwhile."""
        changed = user_id in self._changed
        left = self._reading[user_id] - 1
        if left:
            self._reading[user_id] = left
        else:
            del self._reading[user_id]
            self._changed.discard(user_id)
        if pair is not None and self.live and not changed:
            self._put(user_id, pair)

    def drop(self, user_id: str) -> None:
        """The user has changed."""
        if user_id in self._reading:
            self._changed.add(user_id)
        if entry := self._entries.pop(user_id, None):
            self.num_bytes -= _size(user_id, entry[0])

    def clear(self) -> None:
        """Forget everything: changes may have been missed."""
        self._changed.update(self._reading)
        self._entries.clear()
        self.num_bytes = 0

    def _put(self, user_id: str, pair: Pair) -> None:
        if old := self._entries.pop(user_id, None):
            self.num_bytes -= _size(user_id, old[0])
        self._entries[user_id] = (pair, self._clock())
        self.num_bytes += _size(user_id, pair)
        while self.num_bytes > self._max_bytes:
            oldest, (dropped, _) = self._entries.popitem(last=False)
            self.num_bytes -= _size(oldest, dropped)


def _size(user_id: str, pair: Pair) -> int:
    return OVERHEAD_BYTES + 4 * len(user_id) + len(pair.state or b"") + len(pair.candidates or b"")
