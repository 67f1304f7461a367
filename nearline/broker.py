"""The windows topic as the worker reads it: kafka-python behind a small typed surface.

A committed offset carries what encoded up to it: the current release and, beside it, a canary with its share. Whoever
takes a partition over and encodes otherwise goes on from there, reads everything before once more beside it, the newest
first, and says so to the broker before anything is written (``nearline.left``); so a promotion re-encodes every user
once, and a canary that begins, grows or ends re-encodes the users concerned, also when workers come, go or are killed
meanwhile. A record that comes again names what encoded it before, where that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from kafka import KafkaConsumer, KafkaProducer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.structs import OffsetAndMetadata

from nearline.guarded import guarded
from nearline.left import Left, begun, changed, count, label, lost, read_label, without
from nearline.rereading import Chunk, Rereader
from nearline.states import Record
from nearline.written import Place
from schemas.canary import Split
from schemas.topics import DEAD_LETTERS_TOPIC, WINDOWS_TOPIC
from schemas.window import DeadLetter

GROUP = "beforehand-worker"
MAX_RECORDS = 512
SESSION_TIMEOUT_MS = 8_000
"""A killed worker's partitions wait this long for the next one."""
REQUEST_TIMEOUT_MS = 10_000
LAG_TIMEOUT_MS = 2_000
FLUSH_TIMEOUT_S = 20
PATIENT_S = 1.0
T = TypeVar("T")


class Source(Protocol):
    """Where the worker's records come from. Every method raises ``StoreError`` when the broker can't be reached."""

    def poll(self, timeout_s: float) -> list[Record]:
        """The next records, each partition's in order; empty when none came in time."""
        ...

    def reread(self) -> list[Record] | None:
        """Some records that are to be encoded again, the newest that are left, each partition's in order; None when
        nothing is left. Until ``reread_done`` the same ones come again."""
        ...

    def reread_done(self) -> None:
        """What ``reread`` gave is written: ``commit`` says so to the broker."""
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
        """Give what was delivered from these offsets on to ``reread``, by partition; those that another worker has by
        now are left out."""
        ...

    def use(self, split: Split, goes_on: Callable[[Split], bool]) -> None:
        """Encode with these releases from now on: what was encoded otherwise is given to ``reread``, but for that of
        releases with which it ``goes_on``."""
        ...

    def lag(self) -> int | None:
        """Records not polled yet; None before any partition was assigned."""
        ...

    def left(self) -> int:
        """Offsets that are left to ``reread``."""
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
        self._goes_on: Callable[[Split], bool] = lambda _before: False
        self._next: dict[Any, int] = {}  # partition → offset to commit
        self._done: dict[Any, int] = {}  # partition → offset that was committed last
        self._left: dict[Any, Left] = {}  # partition → what is to be encoded again
        self._told: dict[Any, Left] = {}  # the same as the broker knows it
        self._polled: dict[Any, list[Any]] = {}  # and not handed out yet
        self._chunk: Chunk | None = None  # of what is left: given out and not done
        self._rereader = Rereader(bootstrap)
        self._producer: Any = None
        self._consumer: Any = guarded(lambda: _consumer(bootstrap, group))
        self._consumer.subscribe([WINDOWS_TOPIC], listener=self._assignments)

    def poll(self, timeout_s: float) -> list[Record]:
        # A take-over that failed may wait for a rebalance, which takes its time inside poll.
        patient_s = max(timeout_s, PATIENT_S) if self._assignments.new else timeout_s
        polled: dict[Any, list[Any]] = guarded(lambda: self._consumer.poll(timeout_ms=int(patient_s * 1000)))
        for partition, messages in polled.items():
            self._polled.setdefault(partition, []).extend(messages)
        if self._assignments.new:
            guarded(self._take_over)  # when it fails what was polled stays, for the next call
        records: list[Record] = []
        mine, polled = self._consumer.assignment(), self._polled
        self._polled = {}
        for partition, messages in polled.items():
            if partition not in mine:
                continue
            self._next[partition] = messages[-1].offset + 1
            records += [Record(partition.partition, one.offset, one.key, one.value, one.timestamp) for one in messages]
        return records

    def reread(self) -> list[Record] | None:
        if self._chunk is None:
            mine = self._consumer.assignment()
            partition = next((one for one, left in self._left.items() if left and one in mine), None)
            if partition is None:
                return None
            self._chunk = guarded(lambda: self._rereader.newest(partition, self._left[partition][-1]))
        return self._chunk.records

    def reread_done(self) -> None:
        if self._chunk is not None and self._chunk.partition in self._left:
            self._left[self._chunk.partition] = without(self._left[self._chunk.partition], self._chunk.start)
        self._chunk = None

    def commit(self) -> None:
        mine = self._consumer.assignment()
        progress = {one: self._done[one] for one, left in self._left.items() if left != self._told.get(one)}
        offsets = {partition: offset for partition, offset in (progress | self._next).items() if partition in mine}
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
            done = self._done.get(one, 0)
            self._left[one] = lost(self._left.get(one, ()), offsets[one.partition], max(done, self._next.get(one, 0)))
            guarded(partial(self._commit, {one: done}))  # at once, for whoever takes over: see _take_over
        self._chunk = None

    def use(self, split: Split, goes_on: Callable[[Split], bool]) -> None:
        self._split, self._goes_on = split, goes_on
        self._assignments.new.update(self._consumer.assignment())

    def lag(self) -> int | None:
        mine = list(self._consumer.assignment())
        if not mine or self._assignments.new:
            return None
        return guarded(lambda: self._behind(mine))

    def left(self) -> int:
        mine = self._consumer.assignment()
        return sum(count(left) for one, left in self._left.items() if one in mine)

    def close(self) -> None:
        guarded(lambda: self._consumer.close(autocommit=False, timeout_ms=5_000))
        self._rereader.close()
        if self._producer is not None:
            guarded(lambda: self._producer.close(timeout=5))

    def _behind(self, partitions: Sequence[Any]) -> int:
        ends = self._consumer.end_offsets(partitions, timeout_ms=LAG_TIMEOUT_MS)
        return sum(ends[one] - (self._consumer.position(one, timeout_ms=LAG_TIMEOUT_MS) or 0) for one in partitions)

    def _commit(self, offsets: Mapping[Any, int]) -> None:
        left = {partition: self._left.get(partition, ()) for partition in offsets}
        named = {
            partition: OffsetAndMetadata(offset, label(self._split, left[partition]), -1)
            for partition, offset in offsets.items()
        }
        self._consumer.commit(named, timeout_ms=REQUEST_TIMEOUT_MS)
        self._told |= left

    def _take_over(self) -> None:
        """Of the partitions that just came, find what was encoded otherwise.

        The broker is told at once: a worker that is killed after it has written, and before it commits that, must not
        leave states behind which the next one takes for those of the releases before.
        """
        for partition in list(self._assignments.new):
            committed = self._consumer.committed(partition, metadata=True, timeout_ms=REQUEST_TIMEOUT_MS)
            done = committed.offset if committed else 0
            split, left = read_label(committed.metadata) if committed else (self._split, ())
            if split != self._split:
                end = max(done, self._next.get(partition, 0))
                left = begun(left, split) if self._goes_on(split) else changed(left, end, split)
            self._done[partition], self._left[partition] = done, left
            if split != self._split:
                self._commit({partition: done})
            else:
                self._told[partition] = left
            self._assignments.new.discard(partition)
        self._chunk = None

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
