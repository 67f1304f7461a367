"""``Window``: a user's last N distinct events. Kafka topic ``windows`` (compacted), key ``user_id``, value JSON.

The rule (``nearline.window.fold`` is its reference, the Flink job its implementation): events are distinct by
``event_id`` (first arrival wins), ordered by (at, event_id), newest first; the newest N stay.
"""

from __future__ import annotations

import msgspec


class WindowEvent(msgspec.Struct, frozen=True):
    """One event of a window."""

    event_id: str
    item_id: str
    kind: str
    at: int  # event time, ms


class Window(msgspec.Struct, frozen=True):
    """The value of a record; the record's key is the user_id.

    ``arrived_at`` is the broker's time stamp (ms) of the newest arrival folded in: the near-line tier measures
    event-to-visible from it.
    """

    events: list[WindowEvent]  # newest first
    arrived_at: int = 0


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that could not become an event. Topic ``dead-letters``."""

    reason: str
    topic: str
    partition: int
    offset: int
    payload: bytes  # as it came, cut to 64 KB
    arrived_at: int = 0


_decoder = msgspec.json.Decoder(Window)


def decode_window(raw: bytes) -> Window:
    """Raises ``msgspec.DecodeError`` on a record that is not a window."""
    return _decoder.decode(raw)
