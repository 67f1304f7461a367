"""Reading a partition backwards in chunks: whoever was active last is encoded again first."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka import KafkaConsumer

from nearline.left import Range
from nearline.states import Record

CHUNK = 500
"""Offsets read at a time: new events wait so long, some tens of milliseconds, at most."""
POLL_MS = 200
EMPTY_POLLS = 3
"""Compaction and transactions leave offsets without records: when so many polls give none, there is none."""


class Chunk(NamedTuple):
    """The records of a partition from ``start`` on up to a range's end, in order."""

    partition: Any  # kafka.structs.TopicPartition
    start: int
    records: list[Record]


class Rereader:
    """A consumer beside the group's; it commits nothing. Connects at the first use."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer: Any = None

    def newest(self, partition: Any, left: Range) -> Chunk:
        """The newest records of a range. Raises ``KafkaError``."""
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                bootstrap_servers=self._bootstrap,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=50,
                metrics_enabled=False,
            )
        start = max(left.start, left.end - CHUNK)
        if partition not in self._consumer.assignment():
            self._consumer.assign([partition])
        self._consumer.seek(partition, start)
        return Chunk(partition, start, self._read(partition, left.end, left))

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()

    def _read(self, partition: Any, end: int, left: Range) -> list[Record]:
        found, empty = list[Record](), 0
        while empty < EMPTY_POLLS:
            messages = self._consumer.poll(timeout_ms=POLL_MS, max_records=CHUNK).get(partition, [])
            empty = 0 if messages else empty + 1
            found += [
                Record(one.partition, one.offset, one.key, one.value, one.timestamp, left.before)
                for one in messages
                if one.offset < end
            ]
            if self._consumer.position(partition) >= end:
                break
        return found
