"""The windows topic as the worker reads it: kafka-python behind a small typed surface.

A committed offset carries what encoded up to it: the current release and, beside it, a canary with its share. Whoever
takes a partition over and encodes otherwise starts that partition from its beginning, and says so to the broker before
anything is written; so a promotion re-encodes every user once, and a canary that begins, grows or ends re-encodes the
users concerned, also when workers come, go or are killed meanwhile. A record that comes again names what encoded it
before, where that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from kafka import KafkaConsumer, KafkaProducer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.structs import OffsetAndMetadata

from nearline.guarded import guarded
from nearline.states import Record
from nearline.written import Place
from schemas.canary import Split, read_split
from schemas.topics import DEAD_LETTERS_TOPIC, WINDOWS_TOPIC
from schemas.window import DeadLetter

GROUP = "beforehand-worker"
MAX_RECORDS = 512
SESSION_TIMEOUT_MS = 8_000
"""A killed worker's partitions wait this long for the next one."""
REQUEST_TIMEOUT_MS = 10_000
LAG_TIMEOUT_MS = 2_000
FLUSH_TIMEOUT_S = 20
NOBODY = Split("")
"""What encoded a record whose state Redis lost: it is encoded again, whatever it was encoded by."""
T = TypeVar("T")


class Source(Protocol):
    """Where the worker's records come from. Every method raises ``StoreError`` when the broker can't be reached."""

    def poll(self, timeout_s: float) -> list[Record]:
        """The next records, each partition's in order; empty when none came in time."""
        ...

    def commit(self) -> None:
        """Never deliver again what was polled so far. Call it only after the writes."""
        ...

    def send_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Put letters into the dead-letter topic; they are there when this returns."""
        ...

    def places(self) -> Mapping[int, Place]:
        """Where the worker is in each partition that it has."""
        ...

    def rewind(self, offsets: Mapping[int, int]) -> None:
        """Deliver again from these offsets on, by partition; those that another worker has by now are left out."""
        ...

    def use(self, split: Split) -> None:
        """Encode with these releases from now on: what was encoded otherwise is delivered again, from the start."""
        ...

    def lag(self) -> int | None:
        """Records not polled yet; None before any partition was assigned."""
        ...

    def close(self) -> None:
        """Leave the group, so that another worker need not wait for the session to time out."""
        ...


class _Assignments(ConsumerRebalanceListener):  # pyright: ignore[reportUntypedBaseClass]
    """Notes which partitions came. It runs on kafka-python's own thread and must not ask the broker anything."""

    def __init__(self) -> None:
        self.new: set[Any] = set()

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.new.difference_update(revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.new.update(assigned)


class KafkaSource:
    """``Source`` on Kafka, in the consumer group ``beforehand-worker``."""

    def __init__(self, bootstrap: str, group: str = GROUP) -> None:
        """Connects. Raises ``StoreError`` when the broker does not answer."""
        self._bootstrap = bootstrap
        self._assignments = _Assignments()
        self._split = Split("")
        self._next: dict[Any, int] = {}  # partition → offset to commit
        self._done: dict[Any, int] = {}  # partition → offset that was committed last
        self._before: dict[Any, tuple[int, Split]] = {}  # partition → up to where it is read again, and what encoded it
        self._producer: Any = None
        self._consumer: Any = guarded(lambda: _consumer(bootstrap, group))
        self._consumer.subscribe([WINDOWS_TOPIC], listener=self._assignments)

    def poll(self, timeout_s: float) -> list[Record]:
        polled: dict[Any, list[Any]] = guarded(lambda: self._consumer.poll(timeout_ms=int(timeout_s * 1000)))
        if self._assignments.new:
            for partition in guarded(self._start_again):
                polled.pop(partition, None)
        records: list[Record] = []
        for partition, messages in polled.items():
            self._next[partition] = messages[-1].offset + 1
            until, before = self._before.get(partition, (0, None))
            records += [
                Record(
                    partition.partition,
                    one.offset,
                    one.key,
                    one.value,
                    one.timestamp,
                    before if one.offset < until else None,
                )
                for one in messages
            ]
        return records

    def commit(self) -> None:
        mine = self._consumer.assignment()
        offsets = {partition: offset for partition, offset in self._next.items() if partition in mine}
        self._next.clear()
        if offsets:
            guarded(lambda: self._commit(offsets))
            self._done |= offsets

    def send_letters(self, letters: Sequence[DeadLetter]) -> None:
        if letters:
            guarded(lambda: self._send(letters))

    def places(self) -> Mapping[int, Place]:
        mine = self._consumer.assignment()
        done = {one: offset for one, offset in self._done.items() if one in mine and one not in self._assignments.new}
        return {one.partition: Place(offset, self._next.get(one, offset)) for one, offset in done.items()}

    def rewind(self, offsets: Mapping[int, int]) -> None:
        for one in [one for one in self._consumer.assignment() if one.partition in offsets]:
            offset = offsets[one.partition]
            self._before[one] = (max(self._done.get(one, 0), self._next.pop(one, 0)), NOBODY)
            guarded(partial(self._consumer.seek, one, offset))
            guarded(partial(self._commit, {one: offset}))  # at once, for whoever takes over: see _start_again
            self._done[one] = offset

    def use(self, split: Split) -> None:
        self._split = split
        self._assignments.new.update(self._consumer.assignment())

    def lag(self) -> int | None:
        mine = list(self._consumer.assignment())
        if not mine or self._assignments.new:
            return None
        return guarded(lambda: self._behind(mine))

    def close(self) -> None:
        guarded(lambda: self._consumer.close(autocommit=False, timeout_ms=5_000))
        if self._producer is not None:
            guarded(lambda: self._producer.close(timeout=5))

    def _behind(self, partitions: Sequence[Any]) -> int:
        ends = self._consumer.end_offsets(partitions, timeout_ms=LAG_TIMEOUT_MS)
        return sum(ends[one] - (self._consumer.position(one, timeout_ms=LAG_TIMEOUT_MS) or 0) for one in partitions)

    def _commit(self, offsets: Mapping[Any, int]) -> None:
        label = str(self._split)
        named = {partition: OffsetAndMetadata(offset, label, -1) for partition, offset in offsets.items()}
        self._consumer.commit(named, timeout_ms=REQUEST_TIMEOUT_MS)

    def _start_again(self) -> set[Any]:
        """Of the partitions that just came, rewind those that were encoded otherwise; returns them.

        The broker is told at once: a worker that is killed after it has written, and before it commits that, must not
        leave states behind which the next one takes for those of the releases before.
        """
        rewound: set[Any] = set()
        for partition in list(self._assignments.new):
            committed = self._consumer.committed(partition, metadata=True, timeout_ms=REQUEST_TIMEOUT_MS)
            self._before.pop(partition, None)
            self._done[partition] = committed.offset if committed else 0
            if committed is not None and committed.offset > 0 and committed.metadata != str(self._split):
                self._consumer.seek_to_beginning(partition)
                self._next.pop(partition, None)
                self._commit({partition: 0})
                self._done[partition] = 0
                self._before[partition] = (committed.offset, read_split(committed.metadata))
                rewound.add(partition)
            self._assignments.new.discard(partition)
        return rewound

    def _send(self, letters: Sequence[DeadLetter]) -> None:
        if self._producer is None:
            self._producer = KafkaProducer(bootstrap_servers=self._bootstrap, acks="all", compression_type="lz4")
        sent = [self._producer.send(DEAD_LETTERS_TOPIC, msgspec.json.encode(letter)) for letter in letters]
        for one in sent:
            one.get(timeout=FLUSH_TIMEOUT_S)


def _consumer(bootstrap: str, group: str) -> Any:
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=MAX_RECORDS,
        fetch_max_wait_ms=50,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=2_000,
        reconnect_backoff_max_ms=2_000,
        metrics_enabled=False,
    )
