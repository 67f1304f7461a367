"""Following the catalogue: batches, bad records, refusals, kills, a lost group; against a topic and an insertion in
memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from nearline import catalogue
from nearline.catalogue import CatalogueFollower, ChangeRecord
from nearline.catalogue_metrics import CatalogueTally
from schemas.errors import DataError, StoreError
from schemas.item_change import ItemChange
from schemas.window import DeadLetter

AT = 1_700_000_000_000


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Topic:
    """A topic of one partition, with what the broker keeps for the group."""

    records: list[ChangeRecord] = field(default_factory=list)
    committed: int = 0
    letters: list[DeadLetter] = field(default_factory=list)

    def put(self, item: str, change: str = "added", at: int = AT, key: str | None = None) -> None:
        raw = msgspec.json.encode({"item_id": item, "change": change, "at": at, "title": item})
        self.raw(raw, (key or item).encode())

    def raw(self, value: bytes | None, key: bytes | None) -> None:
        self.records.append(ChangeRecord(0, len(self.records), key, value, int(time.time() * 1000)))


class Source:
    """One life of a follower."""

    def __init__(self, topic: Topic) -> None:
        self.topic, self.position = topic, topic.committed
        self.rewound = self.stays = 0
        self.in_group = True

    def poll(self, timeout_s: float) -> list[ChangeRecord]:
        self.in_group = True
        found = self.topic.records[self.position :]
        self.position += len(found)
        return found

    def commit(self) -> None:
        if not self.in_group:
            raise StoreError("the consumer is not part of an active group")
        self.topic.committed = self.position

    def rewind(self) -> None:
        self.rewound += 1
        self.position = self.topic.committed

    def stay(self) -> None:
        self.stays += 1

    def send_letters(self, letters: Sequence[DeadLetter]) -> None:
        self.topic.letters += letters


class Shop:
    """The insertion: what is kept decides the release, as in the offline tier."""

    def __init__(self) -> None:
        self.kept: dict[str, ItemChange] = {}
        self.current = "base"
        self.calls: list[list[str]] = []
        self.refuses: set[str] = set()
        self.failures = 0
        self.broken = False

    def __call__(self, changes: Sequence[ItemChange]) -> dict[str, Any]:
        self.calls.append([change.item_id for change in changes])
        if self.failures:
            self.failures -= 1
            raise StoreError("the registry is gone")
        if self.broken or self.refuses & {change.item_id for change in changes}:
            raise DataError("every semantic ID is taken")
        for change in changes:
            if change.item_id not in self.kept or change.at >= self.kept[change.item_id].at:
                self.kept[change.item_id] = change
        gone = sum(change.change == "withdrawn" for change in self.kept.values())
        before, self.current = self.current, f"r{sorted((c.item_id, c.at) for c in self.kept.values())}"
        return {
            "release": self.current,
            "promoted": before != self.current,
            "items": len(self.kept) - gone,
            "withdrawn": gone,
        }


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "POLL_S", 0)
    monkeypatch.setattr(catalogue, "LOOK_EVERY_S", 0)


def follow(topic: Topic, shop: Shop, every_s: float = 0.0, source: Source | None = None) -> dict[str, Any]:
    tally, stop = CatalogueTally(), threading.Event()
    stop.wait = lambda timeout=None: False  # type: ignore[method-assign] # no pauses
    source = source or Source(topic)
    follower = CatalogueFollower(source, shop, lambda: shop.current, every_s=every_s, tally=tally, stop=stop)
    follower.run(until_idle_s=0.05)
    return tally.summary()


def test_changes_are_gathered_and_served() -> None:
    topic, shop = Topic(), Shop()
    for item in "abc":
        topic.put(item)
    summary = follow(topic, shop, every_s=0.1)
    assert set(shop.kept) == set("abc")
    assert shop.calls.count(["a", "b", "c"]) == 1
    assert (summary["changes"], summary["dead_letters"], topic.committed) == (3, 0, 3)
    assert summary["change_to_served_s"]["p99"] is not None


def test_a_withdrawal_does_not_wait() -> None:
    topic, shop = Topic(), Shop()
    topic.put("a")
    topic.put("b", "withdrawn")
    follow(topic, shop, every_s=3600)
    assert shop.kept["b"].change == "withdrawn"
    assert "a" in shop.kept


def test_bad_records_cost_one_letter_each_and_nothing_else() -> None:
    topic, shop = Topic(), Shop()
    topic.raw(b"{", b"x")
    topic.raw(None, b"x")
    topic.put("a", key="b")
    topic.put("c", "sold")
    assert follow(topic, shop)["dead_letters"] == 4
    assert topic.committed == 4, "bad ones alone are not read again"
    topic.put("good")
    summary = follow(topic, shop)
    assert [letter.reason for letter in topic.letters] == ["not_json", "null_value", "key", "change"]
    assert [letter.offset for letter in topic.letters] == [0, 1, 2, 3]
    assert (summary["records"], set(shop.kept)) == (1, {"good"})


def test_of_a_refused_batch_only_what_is_at_fault_is_left_out() -> None:
    topic, shop = Topic(), Shop()
    shop.refuses = {"d", "g"}
    for item in "abcdefgh":
        topic.put(item)
    summary = follow(topic, shop)
    assert set(shop.kept) == set("abcefh")
    assert {(one.offset, one.reason) for one in topic.letters} == {
        (3, "refused: every semantic ID is taken"),
        (6, "refused: every semantic ID is taken"),
    }
    assert summary["dead_letters"] == 2
    assert topic.committed == 8


def test_what_refuses_everything_is_not_the_records_fault() -> None:
    topic, shop = Topic(), Shop()
    shop.broken = True
    topic.put("a")
    thread = threading.Thread(target=follow, args=(topic, shop))
    thread.start()
    while len(shop.calls) < 10:
        time.sleep(0.01)
    assert (topic.letters, topic.committed) == ([], 0)
    shop.broken = False
    thread.join()
    assert set(shop.kept) == {"a"}


def test_it_waits_for_what_is_gone_and_a_kill_costs_a_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, shop = Topic(), Shop()
    shop.failures = 3
    topic.put("a")

    def killed(self: Source) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Source, "commit", killed)
        follow(topic, shop)
    assert (set(shop.kept), topic.committed) == ({"a"}, 0)
    release = shop.current
    assert follow(topic, shop)["changes"] == 1
    assert (shop.current, topic.committed, topic.letters) == (release, 1, [])


def test_a_release_that_somebody_promoted_gets_the_changes() -> None:
    topic, shop = Topic(), Shop()
    topic.put("a")
    follow(topic, shop)
    with_a = shop.current
    shop.current = "a new build"
    follow(topic, shop)
    assert shop.current == with_a


class Slow(Shop):
    """Takes so long, the first times, that the broker puts the follower out of its group."""

    def __init__(self, source: Source, times: int) -> None:
        super().__init__()
        self.source, self.times = source, times

    def __call__(self, changes: Sequence[ItemChange]) -> dict[str, Any]:
        if self.times:
            self.times -= 1
            self.source.in_group = False
        return super().__call__(changes)


def test_a_follower_that_lost_its_group_polls_and_reads_again() -> None:
    topic = Topic()
    source = Source(topic)
    shop = Slow(source, times=3)
    topic.put("a")
    topic.raw(b"{", b"x")
    topic.put("b")
    summary = follow(topic, shop, source=source)
    assert (set(shop.kept), topic.committed, source.rewound) == ({"a", "b"}, 3, 3)
    assert (summary["records"], summary["changes"], summary["dead_letters"]) == (3, 2, 1), "counted once"
    assert [one.offset for one in topic.letters] == [1], "one letter, however often it is read"


def test_what_came_meanwhile_is_read_while_an_insertion_fails() -> None:
    topic = Topic()
    source = Source(topic)
    topic.put("a")

    class Away(Shop):
        def __call__(self, changes: Sequence[ItemChange]) -> dict[str, Any]:
            if len(self.calls) < 3:
                topic.put(f"later-{len(self.calls)}")
                self.failures = 1
            return super().__call__(changes)

    shop = Away()
    follow(topic, shop, source=source)
    assert shop.calls[:4] == [
        ["a"],
        ["a", "later-0"],
        ["a", "later-0", "later-1"],
        ["a", *sorted(set(shop.kept) - {"a"})],
    ]
    assert topic.committed == 4


def test_letters_that_can_not_be_sent_are_sent_later(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, shop = Topic(), Shop()
    source, failures = Source(topic), [StoreError("no leader")] * 3
    send = source.send_letters

    def sometimes(letters: Sequence[DeadLetter]) -> None:
        if letters and failures:
            raise failures.pop()
        send(letters)

    monkeypatch.setattr(source, "send_letters", sometimes)
    topic.raw(b"{", b"x")
    topic.put("a")
    follow(topic, shop, source=source)
    assert ([one.offset for one in topic.letters], topic.committed, set(shop.kept)) == ([0], 2, {"a"})


def test_each_of_many_insertions_begins_with_a_sign_of_life() -> None:
    topic, shop = Topic(), Shop()
    source, shop.refuses = Source(topic), {"d"}
    for item in "abcdefgh":
        topic.put(item)
    follow(topic, shop, source=source)
    assert source.stays == len(shop.calls) > 5


def test_another_that_took_over_ends_the_batch() -> None:
    topic, shop = Topic(), Shop()

    class Lost(Source):
        def stay(self) -> None:
            super().stay()
            if self.stays == 1:
                raise StoreError("the topic was assigned anew meanwhile")

    source = Lost(topic)
    topic.put("a")
    follow(topic, shop, source=source)
    assert (source.rewound, set(shop.kept), topic.committed) == (1, {"a"}, 1)


def test_a_registry_that_is_gone_ends_nothing() -> None:
    topic, shop, answers = Topic(), Shop(), [StoreError("the registry is gone")] * 3
    topic.put("a")
    tally, stop = CatalogueTally(), threading.Event()

    def current() -> str | None:
        if answers:
            raise answers.pop()
        return shop.current

    CatalogueFollower(Source(topic), shop, current, every_s=0, tally=tally, stop=stop).run(until_idle_s=1.0)
    assert (set(shop.kept), topic.committed, answers) == ({"a"}, 1, [])
