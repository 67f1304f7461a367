"""Item changes become releases: the catalogue topic in, a grown release that serves out.

A batch is inserted by the offline tier's own command; its offsets are committed when the release serves. What is
delivered twice changes nothing there, so a kill at any point costs a repetition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event as Flag
from typing import Any, NamedTuple, Protocol

from nearline.catalogue_metrics import CatalogueTally
from nearline.patience import Patience
from schemas.cli import say
from schemas.errors import BeforehandError, DataError
from schemas.event import MAX_RECORD_BYTES
from schemas.item_change import Change, ItemChange, decode_change
from schemas.topics import CATALOGUE_TOPIC
from schemas.window import DeadLetter

POLL_S = 0.2
MAX_PENDING = 10_000
MAX_PAUSE_S = 30.0
LOOK_EVERY_S = 5.0


class ChangeRecord(NamedTuple):
    """One record of the topic, as it came."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int  # the broker's, ms


class ChangeSource(Protocol):
    """Where the records come from. Every method raises ``StoreError`` when the broker can't be reached."""

    def poll(self, timeout_s: float) -> list[ChangeRecord]:
        """The next records, each partition's in order."""
        ...

    def commit(self) -> None:
        """Never deliver again what was polled so far."""
        ...

    def send_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Put letters into the dead-letter topic; they are there when this returns."""
        ...


class Insert(Protocol):
    """Makes a release that holds the changes, and lets it take the current one's place; returns what became of it.

    Raises:
        DataError: it refuses these changes.
        BeforehandError: it could not do it now.
    """

    def __call__(self, changes: Sequence[ItemChange], /) -> dict[str, Any]: ...


@dataclass(frozen=True)
class _Pending:
    record: ChangeRecord
    change: ItemChange


class CatalogueFollower:
    """Gathers changes for ``every_s``, a withdrawal at once, and has them inserted."""

    def __init__(
        self,
        source: ChangeSource,
        insert: Insert,
        current: Callable[[], str | None],
        *,
        every_s: float,
        tally: CatalogueTally,
        stop: Flag,
    ) -> None:
        """``current`` says which release serves."""
        self._source, self._insert, self._current = source, insert, current
        self._every_s, self._tally, self._stop = every_s, tally, stop
        self._attempt = Patience(stop, BeforehandError, 0.5, MAX_PAUSE_S)
        self._pending: list[_Pending] = []
        self._unread = 0  # records that are not committed
        self._due_at = 0.0
        self._serves: str | None = None
        self._looked_at = 0.0

    def run(self, *, until_idle_s: float | None = None) -> None:
        """Work until told to stop, or until so long without a record."""
        last_at = time.monotonic()
        while not self._stop.is_set():
            room = len(self._pending) < MAX_PENDING
            if room and (records := self._attempt(lambda: self._source.poll(POLL_S))):
                last_at = time.monotonic()
                self._attempt(lambda records=records: self._take(records))
            if self._due() or self._moved():
                self._attempt(self._apply)
                last_at = time.monotonic()
            if until_idle_s is not None and time.monotonic() - last_at >= until_idle_s and not self._pending:
                return

    def _take(self, records: Sequence[ChangeRecord]) -> None:
        found, letters = list[_Pending](), list[DeadLetter]()
        for record in records:
            try:
                found.append(_Pending(record, read_change(record)))
            except DataError as error:
                letters.append(letter(record, str(error.value)))
        self._source.send_letters(letters)
        self._tally.took(len(records), letters)
        if found and not self._pending:
            self._due_at = time.monotonic() + self._every_s
        if any(one.change.change is Change.WITHDRAWN for one in found):
            self._due_at = time.monotonic()
        self._pending += found
        self._unread += len(records)

    def _due(self) -> bool:
        if self._pending:
            return time.monotonic() >= self._due_at or len(self._pending) >= MAX_PENDING
        if self._unread:  # bad ones only
            self._attempt(self._source.commit)
            self._unread = 0
        return False

    def _moved(self) -> bool:
        """Whether somebody else promoted another release: it begins with all changes that came so far."""
        if time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return False
        self._looked_at = time.monotonic()
        current = self._attempt(self._current, tries=1)
        return current is not None and current != self._serves

    def _apply(self) -> None:
        self._put([one.change for one in self._pending])
        self._source.commit()
        self._tally.served(one.record.timestamp for one in self._pending)
        self._pending, self._unread = [], 0

    def _put(self, changes: list[ItemChange]) -> None:
        """Insert; of changes that are refused only the one that is at fault is left out, as a dead letter."""
        try:
            self._inserted(changes)
        except DataError:
            if not changes:
                raise
            self._inserted([])  # refused as well: it is not the changes
            self._halve(changes)

    def _halve(self, changes: list[ItemChange]) -> None:
        try:
            self._inserted(changes)
        except DataError as error:
            if len(changes) == 1:
                self._refuse(changes[0], error)
                return
            middle = len(changes) // 2
            self._halve(changes[:middle])
            self._halve(changes[middle:])

    def _inserted(self, changes: Sequence[ItemChange]) -> None:
        result = self._insert(changes)
        self._serves = result["release"]
        if result["promoted"]:
            say(f"{result['release']} serves: {result['items']:,} items, {result['withdrawn']:,} withdrawn")
        self._tally.inserted(result)

    def _refuse(self, change: ItemChange, error: DataError) -> None:
        say(f"refused: {change.item_id}: {error}")
        record = next(one.record for one in self._pending if one.change is change)
        letters = [letter(record, f"refused: {error.problem}")]
        self._source.send_letters(letters)
        self._tally.took(0, letters)


def read_change(record: ChangeRecord) -> ItemChange:
    """The change in a record. Raises ``DataError``, its ``value`` the reason: those of ``decode_change``, and key."""
    change = decode_change(record.value)
    if record.key != change.item_id.encode():
        # The topic is compacted by key: under another one a record could outlive its item, or end another's.
        raise DataError("the key is not the item_id", where="catalogue", value="key", mend="Key changes by item_id.")
    return change


def letter(record: ChangeRecord, reason: str) -> DeadLetter:
    """The dead letter of a record, its payload cut to 64 KB."""
    payload = (record.value or b"")[:MAX_RECORD_BYTES]
    return DeadLetter(reason, CATALOGUE_TOPIC, record.partition, record.offset, payload, record.timestamp)
