"""From records of the windows topic to what is written: the near-line step without its input and output."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from nearline.encode import KINDS, History, IntentEncoder, history, stored_rows
from nearline.neighbours import Neighbours
from nearline.release import Release
from nearline.stepping import ROW_CACHE_BYTES, StepEncoder, encoded_part
from schemas.canary import Split
from schemas.errors import DataError
from schemas.event import MAX_AT_MS, MAX_RECORD_BYTES, MIN_AT_MS
from schemas.keys import check_user_id
from schemas.state import IntentState
from schemas.window import DeadLetter, Window, decode_window


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the windows topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None  # None is a tombstone
    timestamp: int = 0  # the broker's, ms
    before: tuple[Split, ...] = ()  # read again: by which releases who may have been encoded when it was read before

    @property
    def reread(self) -> bool:
        """Read before: its freshness says nothing."""
        return bool(self.before)


@dataclass(frozen=True, slots=True)
class Reading:
    """A record that is a window."""

    record: Record
    user_id: str
    window: Window

    @property
    def watermark(self) -> int:
        return self.window.events[0].at


@dataclass
class Sorted:
    """A batch of records by what has to be done; per user only the newest window is kept."""

    windows: dict[str, Reading] = field(default_factory=dict[str, Reading])
    forgotten: dict[str, int] = field(default_factory=dict[str, int])  # user id → sequence of the tombstone
    letters: list[DeadLetter] = field(default_factory=list[DeadLetter])


def sort_out(records: Iterable[Record], topic: str) -> Sorted:
    """Read a batch, each partition's records in order. A record that can't be used becomes one dead letter."""
    found = Sorted()
    for record in records:
        try:
            user_id = _user_id(record)
            if record.value is None:
                found.windows.pop(user_id, None)
                found.forgotten[user_id] = record.offset
            else:
                found.windows[user_id] = Reading(record, user_id, _window(record.value))
        except DataError as error:
            found.letters.append(dead_letter(record, error.problem, topic))
    return found


def _user_id(record: Record) -> str:
    if record.key is None:
        raise DataError("the record has no key", mend="Key the windows by user_id.")
    try:
        return check_user_id(record.key.decode())
    except UnicodeDecodeError:
        raise DataError("the key is not UTF-8") from None


def _window(value: bytes) -> Window:
    try:
        window = decode_window(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"not a window: {error}") from None
    if not window.events:
        raise DataError("not a window: no events")
    for event in window.events:
        if not MIN_AT_MS <= event.at <= MAX_AT_MS:
            raise DataError(f"not a window: at is not in milliseconds since 1970 (got {event.at})")
        if event.kind not in KINDS:
            raise DataError(f"not a window: unknown kind (got {event.kind[:40]!r})")
    return window


def dead_letter(record: Record, reason: str, topic: str) -> DeadLetter:
    """The letter for a record, its payload cut to 64 KB."""
    payload = (record.value or b"")[:MAX_RECORD_BYTES]
    return DeadLetter(reason, topic, record.partition, record.offset, payload, record.timestamp)


@dataclass(frozen=True, slots=True)
class Made:
    """The states of a batch, the readings whose state is not finite (with the reason), and events left out."""

    states: list[tuple[IntentState, Reading]]
    refused: list[tuple[Reading, str]]
    num_unknown: int  # events of items that the release does not know
    num_rows: int = 0  # encoded
    num_whole: int = 0  # that encoding every window whole would have taken


class StateMaker:
    """Makes intent states with one release."""

    def __init__(self, release: Release, row_cache_bytes: int = ROW_CACHE_BYTES) -> None:
        self.release = release
        self._step = StepEncoder(release, row_cache_bytes) if release.step is not None else None
        self._encoder = IntentEncoder(release)
        self._neighbours = Neighbours.of_release(release)

    def make(self, readings: Sequence[Reading], now_ms: int | None = None) -> Made:
        """Encode a batch of windows, one per user.

        A window without any known item gives a state without rows: it is EMPTY to readers, who then use the profile
        bucket's defaults. A state is as old as its window: encoding it again makes it no younger.
        """
        model, numbers = self.release.model, self.release.item_number
        before = self._step.num_encoded if self._step else 0
        histories = [history(reading.window.events, numbers, model.window) for reading in readings]
        rows, broken = stored_rows(self._rows(readings, histories))
        num_whole = sum(len(one.items) for one in histories)
        now = now_ms if now_ms is not None else int(time.time() * 1000)
        bad = set(broken)
        return Made(
            states=[
                (self._state(reading, histories[n], rows[n], min(now, reading.record.timestamp or now)), reading)
                for n, reading in enumerate(readings)
                if n not in bad
            ],
            refused=[(readings[n], f"not finite: the state of user {readings[n].user_id!r}") for n in broken],
            num_unknown=sum(one.num_unknown for one in histories),
            num_rows=self._step.num_encoded - before if self._step else num_whole,
            num_whole=num_whole,
        )

    def forget(self, users: Iterable[str]) -> None:
        """Keep nothing of them in memory."""
        if self._step is not None:
            for user_id in users:
                self._step.forget(user_id)

    def _rows(self, readings: Sequence[Reading], histories: Sequence[History]) -> NDArray[np.float32]:
        """The rows of each window [B, R, d]. Nothing is kept of who is only encoded again: none is expected soon."""
        if self._step is None:
            return self._encoder.rows(histories)
        model, numbers = self.release.model, self.release.item_number
        parts = [history(encoded_part(one.window.events, model.window), numbers, model.window) for one in readings]
        rows = [
            self._step.row(one.user_id, part, keep=not one.record.reread)
            for one, part in zip(readings, parts, strict=True)
        ]
        return np.stack(rows) if rows else np.zeros((0, model.state_rows, model.width), np.float32)

    def _state(self, reading: Reading, past: History, rows: bytes, made_at: int) -> IntentState:
        neighbour_items, neighbour_scores = self._neighbours.of(past.items)
        return IntentState(
            user_id=reading.user_id,
            release=self.release.id,
            made_at=made_at,
            watermark=reading.watermark,
            arrived_at=reading.window.arrived_at,
            bucket=self.release.bucket(reading.user_id),
            rows=rows if past.items else b"",
            num_rows=self.release.model.state_rows if past.items else 0,
            items=past.items,
            kinds=past.kinds,
            times=past.times,
            neighbour_items=neighbour_items,
            neighbour_scores=neighbour_scores,
        )
