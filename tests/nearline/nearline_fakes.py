"""A windows topic in memory, and short ways to make records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from nearline.states import Record
from nearline.written import Place
from schemas.canary import Split, read_split
from schemas.errors import StoreError
from schemas.state import IntentState
from schemas.window import DeadLetter, Window, WindowEvent

AT = 1_700_000_000_000


def window(items: Sequence[str], newest_at: int = AT, arrived_at: int = 0) -> bytes:
    """A window's value: clicks on ``items``, newest first, a minute apart."""
    events = [WindowEvent(f"{newest_at}-{n}", item, "click", newest_at - n * 60_000) for n, item in enumerate(items)]
    return msgspec.json.encode(Window(events, arrived_at))


def state(user_id: str, watermark: int = AT, release: str = "r", items: Sequence[int] = (1,)) -> IntentState:
    times = [watermark] * len(items)
    return IntentState(
        user_id, release, 0, watermark, 0, 0, b"\0" * 4, 1, list(items), [1] * len(items), times, [2], [0.5]
    )


class Killed(BaseException):
    """The process is gone, without any tidying up."""


@dataclass
class Log:
    """One partition of the topic, with what the broker keeps for the group."""

    records: list[Record] = field(default_factory=list)
    committed: int = 0
    committed_release: str = ""
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
        self.before: Split | None = None
        self.reread_until = 0

    def poll(self, timeout_s: float) -> list[Record]:
        if self.failures:
            self.failures -= 1
            raise StoreError("Kafka failed")
        found = self.log.records[self.position : self.position + self.max_records]
        self.position += len(found)
        return [replace(record, before=self.before if record.offset < self.reread_until else None) for record in found]

    def commit(self) -> None:
        if self.kill_at_commit:
            raise Killed
        self.log.committed, self.log.committed_release = self.position, str(self.split)

    def places(self) -> dict[int, Place]:
        return {0: Place(self.log.committed, self.position)}

    def rewind(self, offsets: Mapping[int, int]) -> None:
        self.before, self.reread_until = Split(""), self.position
        self.position = self.log.committed = offsets[0]

    def send_letters(self, letters: Sequence[DeadLetter]) -> None:
        self.log.letters += letters

    def use(self, split: Split) -> None:
        self.split = split
        if self.log.committed_release not in ("", str(split)):
            self.position, self.reread_until = 0, self.log.committed
            self.before = read_split(self.log.committed_release)
            self.log.committed, self.log.committed_release = 0, str(split)

    def lag(self) -> int | None:
        return len(self.log.records) - self.position

    def close(self) -> None:
        pass
