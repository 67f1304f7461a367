"""A windows topic in memory, and short ways to make records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from nearline.left import Range, begun, changed, count, label, lost, read_label, without
from nearline.states import Record
from nearline.written import Place
from schemas.canary import Split
from schemas.errors import StoreError
from schemas.state import IntentState
from schemas.window import DeadLetter, Window, WindowEvent

AT = 1_700_000_000_000
NOW = int(time.time() * 1000) + 3_600_000
"""When states were made, ms: no test is slow enough to see one expire."""


def window(items: Sequence[str], newest_at: int = AT, arrived_at: int = 0) -> bytes:
    """A window's value: clicks on ``items``, newest first, a minute apart."""
    events = [WindowEvent(f"{newest_at}-{n}", item, "click", newest_at - n * 60_000) for n, item in enumerate(items)]
    return msgspec.json.encode(Window(events, arrived_at))


def state(user_id: str, watermark: int = AT, release: str = "r", items: Sequence[int] = (1,)) -> IntentState:
    times = [watermark] * len(items)
    return IntentState(
        user_id, release, NOW, watermark, 0, 0, b"\0" * 4, 1, list(items), [1] * len(items), times, [2], [0.5]
    )


class Killed(BaseException):
    """The process is gone, without any tidying up."""


@dataclass
class Log:
    """One partition of the topic, with what the broker keeps for the group."""

    records: list[Record] = field(default_factory=list)
    committed: int = 0
    label: str = ""  # as in nearline.left
    letters: list[DeadLetter] = field(default_factory=list)

    def append(self, key: str | bytes | None, value: bytes | None) -> None:
        raw = key.encode() if isinstance(key, str) else key
        self.records.append(Record(0, len(self.records), raw, value))


class FakeSource:
    """``nearline.broker.Source`` over a ``Log``; each instance is one life of a worker."""

    def __init__(self, log: Log, *, kill_at_commit: bool = False, max_records: int = 512) -> None:
        self.log = log
        self.kill_at_commit = kill_at_commit
        self.max_records = max_records
        self.failures = 0  # polls that fail before one works
        self.split = Split("")
        self.position = log.committed
        self.ranges = read_label(log.label)[1]
        self.chunk: Range | None = None

    def poll(self, timeout_s: float) -> list[Record]:
        if self.failures:
            self.failures -= 1
            raise StoreError("Kafka failed")
        found = self.log.records[self.position : self.position + self.max_records]
        self.position += len(found)
        return found

    def reread(self) -> list[Record] | None:
        if not self.ranges:
            return None
        top = self.ranges[-1]
        self.chunk = top._replace(start=max(top.start, top.end - self.max_records))
        return [replace(one, before=top.before) for one in self.log.records[self.chunk.start : top.end]]

    def reread_done(self) -> None:
        if self.chunk is not None:
            self.ranges = without(self.ranges, self.chunk.start)
        self.chunk = None

    def left(self) -> int:
        return count(self.ranges)

    def commit(self) -> None:
        if self.kill_at_commit:
            raise Killed
        self.tell(self.position)

    def tell(self, committed: int) -> None:
        self.log.committed, self.log.label = committed, label(self.split, self.ranges)

    def places(self) -> dict[int, Place]:
        return {0: Place(self.log.committed, self.position)}

    def rewind(self, offsets: Mapping[int, int]) -> None:
        self.ranges, self.chunk = lost(self.ranges, offsets[0], self.position), None
        self.tell(self.log.committed)

    def send_letters(self, letters: Sequence[DeadLetter]) -> None:
        self.log.letters += letters

    def use(self, split: Split, goes_on: Callable[[Split], bool]) -> None:
        self.split, self.chunk = split, None
        before = read_label(self.log.label)[0]
        if self.log.label and before != split:
            gone_on = goes_on(before)
            self.ranges = begun(self.ranges, before) if gone_on else changed(self.ranges, self.position, before)
            self.tell(self.log.committed)

    def lag(self) -> int | None:
        return len(self.log.records) - self.position

    def close(self) -> None:
        pass
