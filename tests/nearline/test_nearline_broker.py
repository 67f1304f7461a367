"""What ``KafkaSource`` asks of kafka-python: commits after the fact, and the release kept with the offset."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndMetadata

from nearline import broker
from nearline.broker import KafkaSource
from nearline.written import Place
from schemas.canary import Split
from schemas.errors import StoreError

P0, P1 = TopicPartition("windows", 0), TopicPartition("windows", 1)


def message(offset: int) -> SimpleNamespace:
    return SimpleNamespace(offset=offset, key=b"u", value=b"v", timestamp=5)


class FakeConsumer:
    """A group of one: partitions are assigned by hand."""

    def __init__(self) -> None:
        self.mine: set[TopicPartition] = set()
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.rewound: list[TopicPartition] = []
        self.sought: dict[TopicPartition, int] = {}
        self.polled: dict[TopicPartition, list[SimpleNamespace]] = {}
        self.fails = False

    def subscribe(self, _topics: list[str], listener: broker._Assignments) -> None:
        self.listener = listener

    def assign(self, *partitions: TopicPartition) -> None:
        self.listener.on_partitions_revoked(self.mine)
        self.mine = set(partitions)
        self.listener.on_partitions_assigned(partitions)

    def assignment(self) -> set[TopicPartition]:
        return self.mine

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[SimpleNamespace]]:
        if self.fails:
            raise KafkaTimeoutError("no broker")
        return dict(self.polled)

    def committed(self, partition: TopicPartition, metadata: bool, timeout_ms: int) -> OffsetAndMetadata | None:
        return self.offsets.get(partition)

    def seek_to_beginning(self, partition: TopicPartition) -> None:
        self.rewound.append(partition)

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        self.offsets |= offsets

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.sought[partition] = offset

    def end_offsets(self, partitions: list[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    def position(self, partition: TopicPartition, timeout_ms: int) -> int:
        return 4


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    fake = FakeConsumer()
    monkeypatch.setattr(broker, "_consumer", lambda _bootstrap, _group: fake)
    return fake


@pytest.fixture
def source(consumer: FakeConsumer) -> KafkaSource:
    source = KafkaSource("")
    source.use(Split("r1"))
    return source


def test_the_commit_names_the_next_offset_and_the_release(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.assign(P0, P1)
    consumer.polled = {P0: [message(3), message(4)]}
    assert [record.offset for record in source.poll(0)] == [3, 4]
    assert consumer.offsets == {}
    source.commit()
    assert consumer.offsets == {P0: OffsetAndMetadata(5, "r1", -1)}


def test_a_partition_that_another_release_encoded_starts_again(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(5, "r0", -1), P1: OffsetAndMetadata(5, "r1", -1)}
    consumer.assign(P0, P1)
    consumer.polled = {P0: [message(5)], P1: [message(5)]}
    # what was fetched from the old place does not count
    assert [record.partition for record in source.poll(0)] == [1]
    assert consumer.rewound == [P0]
    # a worker that dies now leaves no doubt about what it may have written
    assert consumer.offsets[P0] == OffsetAndMetadata(0, "r1", -1)
    source.commit()
    assert consumer.offsets[P0] == OffsetAndMetadata(0, "r1", -1)
    consumer.polled = {P0: [message(0), message(4), message(5)]}
    assert [record.before for record in source.poll(0)] == [Split("r0"), Split("r0"), None]


def test_a_new_release_rewinds_what_is_owned(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(5, "r1", -1)}
    consumer.assign(P0)
    source.poll(0)
    assert consumer.rewound == []
    source.use(Split("r2"))
    source.poll(0)
    assert consumer.rewound == [P0]


def test_a_canary_that_begins_and_grows_rewinds_and_says_who_was_encoded_by_what(
    source: KafkaSource, consumer: FakeConsumer
) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(5, "r1", -1)}
    consumer.assign(P0)
    consumer.polled = {P0: [message(4)]}
    source.poll(0)
    for share, before in ((0.1, Split("r1")), (0.2, Split("r1", "c", 0.1))):
        source.use(Split("r1", "c", share))
        assert source.poll(0) == []
        assert [record.before for record in source.poll(0)] == [before]
        source.commit()
        assert consumer.offsets[P0] == OffsetAndMetadata(5, f"r1+c@{share}", -1)
    assert consumer.rewound == [P0, P0]


def test_a_partition_that_comes_back_is_not_taken_for_what_it_was(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(5, "r0", -1)}
    consumer.assign(P0)
    consumer.polled = {P0: [message(0)]}
    source.poll(0)
    assert source.poll(0)[0].before == Split("r0")
    consumer.assign()
    consumer.assign(P0)
    assert source.poll(0)[0].before is None


def test_a_partition_taken_over_half_way_goes_on(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(2, "r1", -1)}
    consumer.assign(P0)
    source.poll(0)
    assert consumer.rewound == []


def test_a_partition_that_was_lost_is_not_committed(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.assign(P0)
    consumer.polled = {P0: [message(3)]}
    source.poll(0)
    consumer.assign(P1)
    source.commit()
    assert consumer.offsets == {}


def test_lag_is_unknown_before_the_first_assignment(source: KafkaSource, consumer: FakeConsumer) -> None:
    assert source.lag() is None
    consumer.assign(P0, P1)
    assert source.lag() is None
    source.poll(0)
    assert source.lag() == 12


def test_a_broker_that_is_gone_is_one_of_our_errors(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.fails = True
    with pytest.raises(StoreError, match="Kafka"):
        source.poll(0)


def test_what_redis_lost_is_read_again_and_the_broker_is_told(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(8, "r1", -1), P1: OffsetAndMetadata(5, "r1", -1)}
    consumer.assign(P0, P1)
    assert source.places() == {}, "not known before the broker was asked"
    consumer.polled = {P0: [message(8), message(9)]}
    source.poll(0.1)
    assert source.places() == {0: Place(8, 10), 1: Place(5, 5)}
    source.rewind({0: 3, 7: 0})
    assert consumer.sought == {P0: 3}
    assert consumer.offsets == {P0: OffsetAndMetadata(3, "r1", -1), P1: OffsetAndMetadata(5, "r1", -1)}
    assert source.places() == {0: Place(3, 3), 1: Place(5, 5)}
    consumer.polled = {P0: [message(9), message(10)]}
    old, new = source.poll(0.1)
    assert (old.reread, new.reread) == (True, False)
    assert old.before is not None
    assert old.before.of("u") != "r1", "it counts as encoded by nobody"
    source.commit()
    assert source.places()[0] == Place(11, 11)
    consumer.assign(P1)
    assert set(source.places()) <= {1}
