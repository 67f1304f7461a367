"""What of an offline history is worth sending: the part that can still be in a window.

History and live events may overlap, and must where a gap would be worse: the events' ids make what comes twice count
once. The window of all is the window of the newest N of the history and the live events, in whatever order they
arrive, so history can be sent before the stream starts or while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from schemas.event import Event

PRUNE_AT = 2
"""A user's events are cut back when they are so many times the window: sorting at every event would cost more."""


def is_forgotten(event: Event, forgotten: Mapping[str, int]) -> bool:
    """Whether the user asked to forget it; ``forgotten`` holds user id → event time (ms)."""
    return event.at <= forgotten.get(event.user_id, -1)


class Tail:
    """Each user's newest ``n`` distinct events; of equal ids the first one added counts."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._users: dict[str, dict[str, tuple[int, str, bytes]]] = {}

    def add(self, event: Event, raw: bytes) -> None:
        """``raw`` is the event as it is to be sent."""
        mine = self._users.setdefault(event.user_id, {})
        mine.setdefault(event.event_id, (event.at, event.event_id, raw))
        if len(mine) >= max(PRUNE_AT * self._n, self._n + 1):
            self._users[event.user_id] = {one[1]: one for one in self._newest(mine.values())}

    def __len__(self) -> int:
        return sum(min(self._n, len(mine)) for mine in self._users.values())

    def __iter__(self) -> Iterator[tuple[str, int, bytes]]:
        """User id, event time (ms) and what is to be sent, each user's oldest first."""
        for user_id, mine in self._users.items():
            for at, _, raw in reversed(self._newest(mine.values())):
                yield user_id, at, raw

    def _newest(self, events: Iterable[tuple[int, str, bytes]]) -> list[tuple[int, str, bytes]]:
        return sorted(events, key=lambda one: one[:2], reverse=True)[: self._n]
