"""The follower's consumer: what it seeks, pauses and commits; against a consumer in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import CommitFailedError, KafkaTimeoutError
from kafka.structs import OffsetAndMetadata, TopicPartition

from nearline import catalogue_topic
from nearline.catalogue_topic import MAX_POLL_INTERVAL_MS, KafkaChanges, send_changes
from nearline.insertion import TIMEOUT_S
from schemas.errors import StoreError
from schemas.item_change import Change, ItemChange
from schemas.topics import CATALOGUE_TOPIC

ONE = TopicPartition(CATALOGUE_TOPIC, 0)


class Consumer:
    """One partition of ten records, read by two at a time."""

    def __init__(self, *_topics: str, **settings: Any) -> None:
        self.settings = settings
        self.position, self.committed = 0, 0
        self.mine, self.held = {ONE}, set[TopicPartition]()
        self.out_of_the_group = False
        self.at_poll: Callable[[], None] = lambda: None

    def assignment(self) -> set[TopicPartition]:
        return self.mine

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        self.at_poll()
        if ONE in self.held or ONE not in self.mine or self.position >= 10:
            return {}
        offsets = range(self.position, self.position + 2)
        self.position += 2
        return {ONE: [SimpleNamespace(offset=at, key=b"k", value=b"v", timestamp=0) for at in offsets]}

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if self.out_of_the_group:
            raise CommitFailedError
        self.committed = offsets[ONE].offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        assert partition in self.mine
        self.position = offset

    def pause(self, *partitions: TopicPartition) -> None:
        self.held |= set(partitions)

    def paused(self) -> set[TopicPartition]:
        return set(self.held)

    def resume(self, *partitions: TopicPartition) -> None:
        self.held -= set(partitions)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> KafkaChanges:
    monkeypatch.setattr(catalogue_topic, "KafkaConsumer", Consumer)
    return KafkaChanges("nowhere")


def consumer(source: KafkaChanges) -> Consumer:
    return source._consumer


def offsets(source: KafkaChanges) -> list[int]:
    return [one.offset for one in source.poll(0)]


def test_an_insertion_may_take_its_time_and_the_group_waits(source: KafkaChanges) -> None:
    assert consumer(source).settings["max_poll_interval_ms"] == MAX_POLL_INTERVAL_MS > TIMEOUT_S * 1000


def test_what_a_failed_commit_left_is_read_again(source: KafkaChanges) -> None:
    assert (offsets(source), offsets(source)) == ([0, 1], [2, 3])
    source.commit()
    assert (offsets(source), offsets(source)) == ([4, 5], [6, 7])
    consumer(source).out_of_the_group = True
    with pytest.raises(StoreError):
        source.commit()
    source.rewind()
    consumer(source).out_of_the_group = False
    assert offsets(source) == [4, 5]
    source.commit()
    assert consumer(source).committed == 6, "nothing that was not read again"


def test_a_lost_partition_is_neither_sought_nor_committed(source: KafkaChanges) -> None:
    offsets(source)
    consumer(source).mine = set()
    source.commit()
    assert consumer(source).committed == 0
    consumer(source).mine = {ONE}
    offsets(source)
    consumer(source).mine = set()
    source.rewind()


def test_staying_reads_nothing(source: KafkaChanges) -> None:
    offsets(source)
    source.stay()
    assert (consumer(source).held, offsets(source)) == (set(), [2, 3])


def test_staying_before_anything_is_read_loses_nothing(source: KafkaChanges) -> None:
    """The first assignment comes with a poll, and with records."""
    mine = consumer(source)
    mine.mine = set()

    def assign() -> None:
        mine.mine = {ONE}

    mine.at_poll = assign
    source.stay()
    assert offsets(source) == [0, 1]


@pytest.mark.parametrize("to", [set(), {ONE}])
def test_staying_tells_of_a_new_assignment(source: KafkaChanges, to: set[TopicPartition]) -> None:
    """Also of the same partition: it comes unpaused, at the offset that is committed."""
    offsets(source)
    mine = consumer(source)

    def rebalance() -> None:
        mine.mine, mine.held, mine.position = to, set(), mine.committed

    mine.at_poll = rebalance
    with pytest.raises(StoreError, match="assigned anew"):
        source.stay()
    mine.at_poll, mine.mine = lambda: None, {ONE}
    source.rewind()
    assert offsets(source)[0] == 0


def test_a_broker_that_does_not_take_a_change_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Producer:
        def __init__(self, **_settings: Any) -> None: ...
        def send(self, *_what: Sequence[Any]) -> None:
            raise KafkaTimeoutError

        def close(self, timeout: float) -> None: ...

    monkeypatch.setattr(catalogue_topic, "KafkaProducer", Producer)
    with pytest.raises(StoreError):
        send_changes("nowhere", [ItemChange(item_id="a", change=Change.WITHDRAWN, at=1_700_000_000_000)])
