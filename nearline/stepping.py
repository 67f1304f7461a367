"""Long windows: the rows of events that were encoded before are kept in memory, and a new event costs one row.

The encoder is causal, so a row depends on the events before it alone. As long as a window begins with the same event,
what was computed of its beginning stands: keys and values by layer, one set per event. A window that slides would begin
with another event each time; so a full one is encoded from an event on that stays first for long (``encoded_part``).

What comes out depends on the window alone, not on what is kept: a worker that starts, one that takes over and one that
has seen every event write the same rows, to the runtime's rounding.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearline.encode import History, graph_inputs
from nearline.release import Array, Release
from schemas.window import WindowEvent

ROW_CACHE_BYTES = 256 * 1024**2
SLACK = 8
"""A full window is encoded from an event on that is among its oldest ``window / SLACK``."""


def encoded_part(events: Sequence[WindowEvent], window: int) -> Sequence[WindowEvent]:
    """The events to encode, newest first: all of a window that is not full; of a full one those from the event on whose
    id has the smallest CRC-32 among the oldest ``window / SLACK``.

    When a window slides by one event that one mostly stays where it is: it changes every ``window / SLACK / 2`` events.
    Half as many of the oldest events are left out, on average.
    """
    if len(events) < window:
        return events
    oldest = range(len(events) - max(1, window // SLACK), len(events))
    first = min(oldest, key=lambda place: (zlib.crc32(events[place].event_id.encode()), place))
    return events[: first + 1]


@dataclass
class _Kept:
    """Of one user: the events from the first on (item, kind, at); their keys and values [1, layers, heads, T, w]."""

    events: list[tuple[int, int, int]]
    key: Array
    value: Array

    @property
    def num_bytes(self) -> int:
        return self.key.nbytes + self.value.nbytes


class StepEncoder:
    """The intent encoder of one release by ``intent_step.onnx``. Not for use by several threads at once."""

    def __init__(self, release: Release, cache_bytes: int = ROW_CACHE_BYTES) -> None:
        """``release.step`` is there. Of the users that were encoded last so much is kept as ``cache_bytes`` hold."""
        self._session: Any = release.step
        self._item_in = release.arrays["item_in"]
        self._rows, self._width = release.model.state_rows, release.model.width
        shape: Any = self._session.get_inputs()[3].shape
        self._layers, self._heads = int(shape[1]), int(shape[2])
        self._cache_bytes = cache_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.num_bytes = 0  # kept
        self.num_encoded = 0  # rows, so far
        self.num_whole = 0  # rows that encoding every window whole would have taken

    def row(self, user_id: str, past: History, *, keep: bool = True) -> Array:
        """The last R rows [R, d], zeros where there are fewer events. Without ``keep`` nothing new is kept: the user is
        not expected soon."""
        events = list(zip(past.items[::-1], past.kinds[::-1], past.times[::-1], strict=True))
        found = np.zeros((self._rows, self._width), np.float32)
        if not events:
            return found
        kept = self._kept.get(user_id)
        # The state's own rows are not kept: as many events are always encoded.
        same = min(_common(kept.events, events), max(0, len(events) - self._rows)) if kept else 0
        rows, key, value = self._encode(past, kept, same)
        found[-rows.shape[0] :] = rows[-self._rows :]
        self.num_encoded += len(events) - same
        self.num_whole += len(events)
        if keep or kept:
            self._keep(user_id, _Kept(events, key, value))
        return found

    def forget(self, user_id: str) -> None:
        """Keep nothing of the user."""
        if kept := self._kept.pop(user_id, None):
            self.num_bytes -= kept.num_bytes

    def _encode(self, past: History, kept: _Kept | None, same: int) -> tuple[Array, Array, Array]:
        inputs = {name: array[:, same:] for name, array in graph_inputs([past], len(past.items)).items()}
        if kept and same:
            before = kept.key[:, :, :, :same], kept.value[:, :, :, :same]
        else:
            empty = np.zeros((1, self._layers, self._heads, 0, self._width // self._heads), np.float32)
            before = empty, empty
        feed = inputs | {"past_key": before[0], "past_value": before[1], "item_in": self._item_in}
        rows, key, value = self._session.run(None, feed)
        return rows[0], np.concatenate([before[0], key], axis=3), np.concatenate([before[1], value], axis=3)

    def _keep(self, user_id: str, kept: _Kept) -> None:
        self.forget(user_id)
        self._kept[user_id] = kept
        self.num_bytes += kept.num_bytes
        while self.num_bytes > self._cache_bytes:
            self.forget(next(iter(self._kept)))


def _common(one: Sequence[tuple[int, int, int]], other: Sequence[tuple[int, int, int]]) -> int:
    """How many events at the beginning are the same."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(place for place in range(length) if one[place] != other[place])
