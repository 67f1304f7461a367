"""What ``KafkaSource`` asks of kafka-python: commits after the fact, and the release kept with the offset."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError, RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

from nearline import broker
from nearline.broker import KafkaSource
from nearline.left import NOBODY, Range
from nearline.rereading import Chunk
from nearline.states import Record
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
        self.polled: dict[TopicPartition, list[SimpleNamespace]] = {}
        self.fails = False
        self.rebalancing = 0  # commits that fail
        self.waited_ms: list[int] = []

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
        self.waited_ms.append(timeout_ms)
        return dict(self.polled)

    def committed(self, partition: TopicPartition, metadata: bool, timeout_ms: int) -> OffsetAndMetadata | None:
        return self.offsets.get(partition)

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        if self.rebalancing:
            self.rebalancing -= 1
            raise RebalanceInProgressError
        self.offsets |= offsets

    def end_offsets(self, partitions: list[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    def position(self, partition: TopicPartition, timeout_ms: int) -> int:
        return 4


class FakeRereader:
    """Two offsets at a time; every one has a record."""

    def __init__(self, _bootstrap: str) -> None:
        pass

    def newest(self, partition: TopicPartition, left: Range) -> Chunk:
        start = max(left.start, left.end - 2)
        records = [Record(partition.partition, n, b"u", b"v", 5, left.before) for n in range(start, left.end)]
        return Chunk(partition, start, records)


def never(_before: Split) -> bool:
    return False


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    fake = FakeConsumer()
    monkeypatch.setattr(broker, "Rereader", FakeRereader)
    monkeypatch.setattr(broker, "_consumer", lambda _bootstrap, _group: fake)
    return fake


@pytest.fixture
def source(consumer: FakeConsumer) -> KafkaSource:
    source = KafkaSource("")
    source.use(Split("r1"), never)
    return source


def test_the_commit_names_the_next_offset_and_the_release(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.assign(P0, P1)
    consumer.polled = {P0: [message(3), message(4)]}
    assert [record.offset for record in source.poll(0)] == [3, 4]
    assert consumer.offsets == {}
    source.commit()
    assert consumer.offsets == {P0: OffsetAndMetadata(5, "r1", -1)}


def test_what_another_release_encoded_is_read_again_beside_what_is_new(
    source: KafkaSource, consumer: FakeConsumer
) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(5, "r0", -1), P1: OffsetAndMetadata(5, "r1", -1)}
    consumer.assign(P0, P1)
    consumer.polled = {P0: [message(5)], P1: [message(5)]}
    assert [(one.partition, one.offset, one.reread) for one in source.poll(0)] == [(0, 5, False), (1, 5, False)]
    # a worker that dies now leaves no doubt about what it may have written
    assert consumer.offsets[P0] == OffsetAndMetadata(5, "r1;0-5:r0", -1)
    assert source.left() == 5
    newest = source.reread()
    assert newest is not None
    assert [(one.offset, one.before) for one in newest] == [(3, (Split("r0"),)), (4, (Split("r0"),))]
    assert source.reread() == newest, "until they are done"
    source.reread_done()
    source.commit()
    assert consumer.offsets == {P0: OffsetAndMetadata(6, "r1;0-3:r0", -1), P1: OffsetAndMetadata(6, "r1", -1)}
    while source.reread() is not None:
        source.reread_done()
    assert source.left() == 0
    source.commit()
    assert consumer.offsets[P0] == OffsetAndMetadata(6, "r1", -1)


def test_a_worker_that_takes_over_goes_on_with_what_is_left(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(9, "r1;0-3:r0", -1)}
    consumer.assign(P0)
    consumer.polled = {}
    source.poll(0)
    assert [one.offset for one in source.reread() or []] == [1, 2]
    consumer.assign()
    assert (source.left(), source.reread_done(), source.reread()) == (0, None, None)


def test_a_change_during_a_change_knows_what_may_have_encoded_each(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(6, "r0", -1)}
    consumer.assign(P0)
    source.poll(0)
    source.reread()
    source.reread_done()
    source.commit()
    source.use(Split("r1", "c", 0.1), never)
    source.poll(0)
    # what was done is r1's; of what was not, some may be
    assert consumer.offsets[P0].metadata == "r1+c@0.1;0-4:r0|r1;4-6:r1"
    source.use(Split("r1"), never)
    source.poll(0)
    assert consumer.offsets[P0].metadata == "r1;0-4:r0|r1|r1+c@0.1;4-6:r1|r1+c@0.1"


def test_a_release_that_goes_on_with_the_states_reads_nothing_again(
    source: KafkaSource, consumer: FakeConsumer
) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(5, "r1", -1), P1: OffsetAndMetadata(5, "r1;0-2:r0", -1)}
    consumer.assign(P0, P1)
    source.poll(0)
    source.use(Split("grown"), lambda before: before == Split("r1"))
    source.poll(0)
    assert consumer.offsets == {
        P0: OffsetAndMetadata(5, "grown", -1),
        P1: OffsetAndMetadata(5, "grown;0-2:r0|r1", -1),
    }


def test_a_partition_taken_over_half_way_goes_on(source: KafkaSource, consumer: FakeConsumer) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(2, "r1", -1)}
    consumer.assign(P0)
    source.poll(0)
    assert source.left() == 0


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


def test_a_take_over_during_a_rebalance_loses_nothing_and_gives_the_next_poll_time(
    source: KafkaSource, consumer: FakeConsumer
) -> None:
    consumer.offsets = {P0: OffsetAndMetadata(5, "r0", -1)}
    consumer.assign(P0)
    consumer.rebalancing = 1
    consumer.polled = {P0: [message(5)]}
    with pytest.raises(StoreError, match="Kafka"):
        source.poll(0)
    consumer.polled = {P0: [message(6)]}
    assert [one.offset for one in source.poll(0)] == [5, 6]
    assert consumer.waited_ms[-1] >= 500
    assert consumer.offsets[P0] == OffsetAndMetadata(5, "r1;0-5:r0", -1)


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
    assert consumer.offsets == {P0: OffsetAndMetadata(8, "r1;3-10:", -1), P1: OffsetAndMetadata(5, "r1", -1)}
    assert source.places() == {0: Place(8, 10), 1: Place(5, 5)}
    consumer.polled = {P0: [message(10)]}
    assert [one.reread for one in source.poll(0.1)] == [False]
    found = source.reread() or []
    assert [one.offset for one in found] == [8, 9]
    assert found[0].before == (NOBODY,)
    source.reread_done()
    source.commit()
    assert consumer.offsets[P0] == OffsetAndMetadata(11, "r1;3-8:", -1)
    assert source.places()[0] == Place(11, 11)
    consumer.assign(P1)
    assert set(source.places()) <= {1}
