"""The window rule, as a pure function: the reference that the stream job's aggregate is compared with."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.event import Event
from schemas.window import WindowEvent


def fold(events: Iterable[Event | WindowEvent], n: int) -> list[WindowEvent]:
    """One user's window: the newest ``n`` distinct events, newest first.

    ``events`` are in order of arrival. Of events with the same ``event_id`` the first arrival counts. The order is by
    ``(at, event_id)``, so two events at the same millisecond always come out the same way round.

    Events that share an id are taken to be equal, as ``schemas.event.Event`` promises. Then the fold can go on from
    its own result, ``fold([*reversed(fold(a, n)), *b], n) == fold([*a, *b], n)``, and keeping ``n`` events is enough.
    """
    first: dict[str, WindowEvent] = {}
    for event in events:
        first.setdefault(event.event_id, WindowEvent(event.event_id, event.item_id, str(event.kind), event.at))
    return sorted(first.values(), key=lambda event: (event.at, event.event_id), reverse=True)[:n]
