"""The catalogue topic on Kafka: read by the follower, written by operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata

from nearline.catalogue import ChangeRecord
from nearline.guarded import guarded
from nearline.insertion import TIMEOUT_S
from schemas.errors import StoreError
from schemas.item_change import ItemChange, encode_change
from schemas.topics import CATALOGUE_TOPIC, DEAD_LETTERS_TOPIC
from schemas.window import DeadLetter

GROUP = "beforehand-catalogue"
SESSION_TIMEOUT_MS = 10_000
MAX_POLL_INTERVAL_MS = (TIMEOUT_S + 300) * 1000
"""Longer than an insertion may take: who does not poll for so long is put out of the group."""
STAY_MS = 100
SEND_TIMEOUT_S = 20


class KafkaChanges:
    """``nearline.catalogue.ChangeSource`` on Kafka. A follower that waits takes over when the other one ends."""

    def __init__(self, bootstrap: str, group: str = GROUP) -> None:
        """Connects. Raises ``StoreError`` when the broker does not answer."""
        self._bootstrap = bootstrap
        self._first: dict[Any, int] = {}  # by partition: the first offset that was polled and is not committed
        self._next: dict[Any, int] = {}  # and the one after the last
        self._producer: Any = None
        self._consumer: Any = guarded(
            lambda: KafkaConsumer(
                CATALOGUE_TOPIC,
                bootstrap_servers=bootstrap,
                group_id=group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=SESSION_TIMEOUT_MS,
                heartbeat_interval_ms=2_000,
                max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            )
        )

    def poll(self, timeout_s: float) -> list[ChangeRecord]:
        polled = self._poll(int(timeout_s * 1000))
        return [
            ChangeRecord(partition.partition, one.offset, one.key, one.value, one.timestamp)
            for partition, messages in polled.items()
            for one in messages
        ]

    def _poll(self, timeout_ms: int) -> dict[Any, list[Any]]:
        polled: dict[Any, list[Any]] = guarded(lambda: self._consumer.poll(timeout_ms=timeout_ms))
        for partition, messages in polled.items():
            self._first.setdefault(partition, messages[0].offset)
            self._next[partition] = messages[-1].offset + 1
        return polled

    def commit(self) -> None:
        mine = self._consumer.assignment()
        offsets = {one: OffsetAndMetadata(offset, "", -1) for one, offset in self._next.items() if one in mine}
        if offsets:
            guarded(lambda: self._consumer.commit(offsets))
        self._first.clear()
        self._next.clear()

    def rewind(self) -> None:
        mine = self._consumer.assignment()
        for partition, offset in self._first.items():
            if partition in mine:  # of another that is assigned again the group's own offset counts
                self._consumer.seek(partition, offset)
        self._first.clear()
        self._next.clear()

    def stay(self) -> None:
        mine, begun = set(self._consumer.assignment()), bool(self._first)
        self._consumer.pause(*mine)
        try:
            polled = self._poll(STAY_MS)
        finally:
            self._consumer.resume(*self._consumer.paused())
        if not begun:  # the first assignment, say: what came with it is for the next poll
            self.rewind()
        elif polled or set(self._consumer.assignment()) != mine:
            raise StoreError(
                "the topic was assigned anew meanwhile", where=CATALOGUE_TOPIC, mend="Another follower came or went."
            )

    def send_letters(self, letters: Sequence[DeadLetter]) -> None:
        if not letters:
            return
        if self._producer is None:
            self._producer = guarded(lambda: KafkaProducer(bootstrap_servers=self._bootstrap, acks="all"))
        raws = [msgspec.json.encode(one) for one in letters]
        sent = guarded(lambda: [self._producer.send(DEAD_LETTERS_TOPIC, raw) for raw in raws])
        guarded(lambda: [one.get(timeout=SEND_TIMEOUT_S) for one in sent])

    def close(self) -> None:
        """Leave the group, so that another follower need not wait."""
        guarded(lambda: self._consumer.close(autocommit=False))
        if self._producer is not None:
            self._producer.close(timeout=5)


def send_changes(bootstrap: str, changes: Iterable[ItemChange]) -> int:
    """Put changes into the topic; returns how many. They are there for good when it does. Raises ``StoreError``."""
    producer: Any = guarded(lambda: KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5))
    try:
        sent = guarded(
            lambda: [producer.send(CATALOGUE_TOPIC, encode_change(one), one.item_id.encode()) for one in changes]
        )
        guarded(lambda: [one.get(timeout=SEND_TIMEOUT_S) for one in sent])
    finally:
        producer.close(timeout=5)
    return len(sent)
