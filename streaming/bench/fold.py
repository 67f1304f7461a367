"""The window rule in Python, one event at a time: what the plain job keeps per user. Same semantics as LAST_EVENTS."""

from __future__ import annotations

import msgspec

from schemas.event import Event
from schemas.window import Window, WindowEvent

_encode = msgspec.json.Encoder().encode


class Kept(msgspec.Struct):
    """One user's state: the newest events, newest first."""

    events: list[WindowEvent] = []
    arrived_at: int = 0
    forgotten_at: int = -1  # events up to this time are not taken

    def add(self, event: Event, arrived_at: int, size: int) -> None:
        """Take an event in, once, at its place."""
        self.arrived_at = max(self.arrived_at, arrived_at)
        if event.at <= self.forgotten_at or any(one.event_id == event.event_id for one in self.events):
            return
        self.events.append(WindowEvent(event.event_id, event.item_id, str(event.kind), event.at))
        self.events.sort(key=lambda one: (one.at, one.event_id), reverse=True)
        del self.events[size:]

    def forget(self, at: int, arrived_at: int) -> None:
        """Drop what happened up to ``at``, now and whenever it arrives."""
        self.arrived_at = max(self.arrived_at, arrived_at)
        self.forgotten_at = max(self.forgotten_at, at)
        self.events = [one for one in self.events if one.at > self.forgotten_at]

    def window(self) -> bytes | None:
        """The record of the windows topic; None, a tombstone, without events."""
        return _encode(Window(self.events, self.arrived_at)) if self.events else None
