"""Item changes become releases: the catalogue topic in, a grown release that serves out.

A batch is inserted by the offline tier's own command; its offsets are committed when the release serves. What is
delivered twice changes nothing there, so a kill or a failure at any point costs a repetition: whatever fails, what is
not committed is read again.
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
FIRST_PAUSE_S = 0.5
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
        """Never deliver again what was polled so far. Once it failed, only ``rewind`` and polling again help."""
        ...

    def rewind(self) -> None:
        """Deliver again what is not committed."""
        ...

    def stay(self) -> None:
        """Read nothing, but tell the broker that the follower lives. Raises ``StoreError`` when another took over."""
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
        self._polled = Patience(stop, BeforehandError, FIRST_PAUSE_S, MAX_PAUSE_S)
        self._pending: list[_Pending] = []
        self._uncommitted = 0  # records, also bad ones
        self._told: set[tuple[int, int]] = set()  # uncommitted ones whose letter is sent: partition, offset
        self._pause_s = 0.0  # 0 while nothing fails
        self._due_at = 0.0
        self._serves: str | None = None
        self._looked_at = 0.0

    def run(self, *, until_idle_s: float | None = None) -> None:
        """Work until told to stop, or until so long without a record."""
        last_at = time.monotonic()
        while not self._stop.is_set():
            if self._step():
                last_at = time.monotonic()
            if until_idle_s is not None and time.monotonic() - last_at >= until_idle_s and not self._uncommitted:
                return

    def _step(self) -> bool:
        """Poll once, and do what is due; whether there was anything.

        Nothing here is tried twice without a poll in between: a follower that does not poll is put out of its group,
        and only polling brings it back.
        """
        records = self._polled(lambda: self._source.poll(POLL_S)) or []
        try:
            self._take(records)
            moved = self._moved()
            if not (moved or self._due()):
                return bool(records)
            self._apply(moved)
        except BeforehandError as error:
            self._begin_again(error)
        return True

    def _begin_again(self, error: BeforehandError) -> None:
        if not self._pause_s:
            say(f"{error} Nothing is lost; trying again.")
        self._pause_s = min(MAX_PAUSE_S, 2 * self._pause_s or FIRST_PAUSE_S)
        self._pending, self._uncommitted = [], 0
        self._source.rewind()
        self._stop.wait(self._pause_s)

    def _take(self, records: Sequence[ChangeRecord]) -> None:
        found, letters = list[_Pending](), list[tuple[ChangeRecord, str]]()
        for record in records:
            try:
                found.append(_Pending(record, read_change(record)))
            except DataError as error:
                letters.append((record, str(error.value)))
        self._tell(letters)
        if found and not self._pending:
            self._due_at = time.monotonic() + self._every_s
        if any(one.change.change is Change.WITHDRAWN for one in found):
            self._due_at = time.monotonic()
        self._pending += found
        self._uncommitted += len(records)

    def _tell(self, refused: Sequence[tuple[ChangeRecord, str]]) -> None:
        """Dead letters for records and reasons; one that is read again has its letter already."""
        new = [(one, reason) for one, reason in refused if (one.partition, one.offset) not in self._told]
        letters = [letter(one, reason) for one, reason in new]
        self._source.send_letters(letters)
        self._tally.took(0, letters)
        self._told |= {(one.partition, one.offset) for one, _ in new}

    def _due(self) -> bool:
        if self._pending:
            return time.monotonic() >= self._due_at or self._uncommitted >= MAX_PENDING
        return self._uncommitted > 0  # bad ones only

    def _moved(self) -> bool:
        """Whether somebody else promoted another release: it begins with all changes that came so far."""
        if time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return False
        self._looked_at = time.monotonic()
        try:
            current = self._current()
        except BeforehandError:  # the next insertion says what is wrong
            return False
        return current is not None and current != self._serves

    def _apply(self, moved: bool) -> None:
        if self._pending or moved:
            self._put([one.change for one in self._pending])
        self._source.commit()
        self._tally.took(self._uncommitted, ())
        self._tally.served(one.record.timestamp for one in self._pending)
        self._pending, self._uncommitted = [], 0
        self._told.clear()
        if self._pause_s:
            say("it works again")
            self._pause_s = 0.0

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
        self._source.stay()  # a refused batch takes many insertions, and each may take minutes
        result = self._insert(changes)
        self._serves = result["release"]
        if result["promoted"]:
            say(f"{result['release']} serves: {result['items']:,} items, {result['withdrawn']:,} withdrawn")
        self._tally.inserted(result)

    def _refuse(self, change: ItemChange, error: DataError) -> None:
        say(f"refused: {change.item_id}: {error}")
        record = next(one.record for one in self._pending if one.change is change)
        self._tell([(record, f"refused: {error.problem}")])


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
