"""The worker's loop over a topic in memory and a real Redis: crashes, redelivery, changes of release, outages."""

from __future__ import annotations

import threading

import msgspec
import pytest
import redis
from nearline_fakes import AT, FakeSource, Killed, Log, window

from nearline import worker
from nearline.metrics import Tally
from nearline.release import Release
from nearline.serving import Serving
from nearline.store import StateStore
from nearline.worker import Worker
from schemas.errors import StoreError
from schemas.keys import candidates_key, state_key
from schemas.state import IntentState, decode_candidates, decode_state

USERS = 30


class Follow:
    """A follower that hands out one change once."""

    def __init__(self, following: Serving | None = None) -> None:
        self.following = following

    def newer(self, in_use: Serving) -> Serving | None:
        following, self.following = self.following, None
        return following


@pytest.fixture
def items(release: Release) -> list[str]:
    return list(release.item_number)


@pytest.fixture
def log(items: list[str]) -> Log:
    log = Log()
    for n in range(USERS):
        log.append(f"u{n}", window(items[n : n + 5], AT + n, arrived_at=AT))
    return log


def run(
    source: FakeSource,
    store: StateStore,
    release: Release | Serving,
    *,
    follow: Follow | None = None,
    candidates_per_s: float = 0,
    stop: threading.Event | None = None,
) -> Tally:
    tally = Tally()
    worker = Worker(
        source,
        store,
        follow or Follow(),
        release if isinstance(release, Serving) else Serving(release),
        candidates_per_s=candidates_per_s,
        tally=tally,
        stop=stop or threading.Event(),
    )
    worker.run(once=True)
    return tally


def all_states(client: redis.Redis) -> dict[str, IntentState]:
    """Every state, without the moment it was made at."""
    values = [decode_state(client.get(key)) for key in client.keys("*:state")]
    return {one.user_id: msgspec.structs.replace(one, made_at=0) for one in values}


def renamed(release: Release, release_id: str) -> Release:
    manifest = msgspec.structs.replace(release.manifest, id=release_id)
    return Release(manifest, release.encoder, release.decoder, release.arrays, release.item_number, release.users)


def test_every_window_becomes_a_state(client: redis.Redis, store: StateStore, release: Release, log: Log) -> None:
    tally = run(FakeSource(log), store, release)
    found = all_states(client)
    assert set(found) == {f"u{n}" for n in range(USERS)}
    assert all(found[f"u{n}"].watermark == AT + n for n in range(USERS))
    assert log.committed == USERS
    summary = tally.summary()
    assert (summary["records"], summary["states"], summary["stale"], summary["dead_letters"]) == (USERS, USERS, 0, 0)
    assert summary["event_to_visible_ms"]["p50"] > 0


def test_killed_between_write_and_commit_nothing_is_lost_and_redelivery_changes_nothing(
    client: redis.Redis, store: StateStore, release: Release, log: Log
) -> None:
    with pytest.raises(Killed):
        run(FakeSource(log, kill_at_commit=True, max_records=7), store, release)
    assert len(all_states(client)) == 7
    assert log.committed == 0
    tally = run(FakeSource(log), store, release)
    after = all_states(client)
    assert len(after) == USERS
    assert tally.count("states") == USERS
    log.committed = 0
    run(FakeSource(log), store, release)
    assert all_states(client) == after


def test_an_old_redelivery_does_not_undo_what_another_worker_wrote(
    client: redis.Redis, store: StateStore, release: Release, log: Log, items: list[str]
) -> None:
    with pytest.raises(Killed):
        run(FakeSource(log, kill_at_commit=True), store, release)
    log.append("u3", window([items[40], items[3]], AT + 500))
    run(FakeSource(log, max_records=1), store, release)
    newest = all_states(client)["u3"]
    assert newest.watermark == AT + 500
    slow = FakeSource(Log(log.records[:USERS]))  # still holds what it polled before the rebalance
    assert run(slow, store, release).count("stale") == 1
    assert all_states(client)["u3"] == newest


def test_a_poison_record_costs_one_letter(
    client: redis.Redis, store: StateStore, release: Release, items: list[str]
) -> None:
    log = Log()
    for key, value in [("a", b"{"), (None, b"x"), ("b", window(items[:2]))]:
        log.append(key, value)
    tally = run(FakeSource(log), store, release)
    assert [letter.offset for letter in log.letters] == [0, 1]
    assert tally.count("dead_letters") == 2
    assert set(all_states(client)) == {"b"}
    assert log.committed == 3


def test_a_tombstone_deletes_all_of_the_user(
    client: redis.Redis, store: StateStore, release: Release, log: Log, items: list[str]
) -> None:
    run(FakeSource(log), store, release, candidates_per_s=1000)
    log.append("u1", None)
    run(FakeSource(log), store, release, candidates_per_s=1000)
    assert client.exists(state_key("u1"), candidates_key("u1")) == 0
    log.committed = 0  # a rebuild reads everything again
    run(FakeSource(log, max_records=1), store, release, candidates_per_s=1000)
    assert client.exists(state_key("u1"), candidates_key("u1")) == 0
    log.append("u1", window(items[:1], AT - 1000))  # back again, with an old event
    run(FakeSource(log), store, release)
    assert all_states(client)["u1"].watermark == AT - 1000


def test_a_new_release_encodes_everybody_again(
    client: redis.Redis, store: StateStore, release: Release, log: Log
) -> None:
    run(FakeSource(log), store, release)
    tally = run(FakeSource(log), store, release, follow=Follow(Serving(renamed(release, "next"))))
    assert {one.release for one in all_states(client).values()} == {"next"}
    assert tally.count("states") == USERS
    assert log.label == "next"
    # what is read again says nothing about freshness
    assert tally.summary()["event_to_visible_ms"]["p50"] is None


def test_a_release_change_survives_a_crash_half_way(
    client: redis.Redis, store: StateStore, release: Release, log: Log
) -> None:
    run(FakeSource(log), store, release)
    following = renamed(release, "next")
    with pytest.raises(Killed):
        run(FakeSource(log, kill_at_commit=True, max_records=9), store, following)
    run(FakeSource(log), store, following)
    assert {one.release for one in all_states(client).values()} == {"next"}


def test_candidate_lists_belong_to_the_states(
    client: redis.Redis, store: StateStore, release: Release, log: Log
) -> None:
    tally = run(FakeSource(log, max_records=10), store, release, candidates_per_s=1000)
    lists = [decode_candidates(client.get(key)) for key in client.keys("*:candidates")]
    assert len(lists) == tally.count("candidates") > 0
    found = all_states(client)
    assert all(one.watermark == found[one.user_id].watermark and one.release == release.id for one in lists)


def test_no_lists_when_the_plan_allows_none(client: redis.Redis, store: StateStore, release: Release, log: Log) -> None:
    run(FakeSource(log), store, release, candidates_per_s=0)
    assert client.keys("*:candidates") == []


class Flaky:
    """A store that fails for a while, then works."""

    def __init__(self, store: StateStore, failures: int) -> None:
        self.store, self.failures = store, failures

    def __getattr__(self, name: str) -> object:
        if name == "write_states" and self.failures:
            self.failures -= 1
            raise StoreError("Redis failed: gone")
        return getattr(self.store, name)


def test_an_outage_is_waited_for_and_said_once(
    client: redis.Redis, store: StateStore, release: Release, log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    source = FakeSource(log)
    source.failures = 2
    tally = run(source, Flaky(store, 3), release)
    assert len(all_states(client)) == USERS
    assert tally.count("states") == USERS
    said = capsys.readouterr().err
    assert said.count("Redis failed") == 1
    assert said.count("Kafka failed") == 1
    assert said.count("it works again") == 2


def test_a_stop_during_an_outage_commits_nothing(store: StateStore, release: Release, log: Log) -> None:
    stop = threading.Event()

    class Down:
        written_to, keeps = store.written_to, store.keeps

        def forget(self, _users: object) -> None:
            stop.set()
            raise StoreError("Redis failed: gone")

    run(FakeSource(log), Down(), release, stop=stop)
    assert log.committed == 0


def test_a_stop_finishes_the_batch_first(client: redis.Redis, store: StateStore, release: Release, log: Log) -> None:
    stop = threading.Event()

    class Stopping(FakeSource):
        def poll(self, timeout_s: float) -> list:
            stop.set()
            return super().poll(timeout_s)

    run(Stopping(log, max_records=4), store, release, stop=stop)
    assert log.committed == len(all_states(client)) == 4


def test_unknown_items_are_counted(store: StateStore, release: Release) -> None:
    log = Log()
    log.append("u", window(["gone", "gone too"]))
    assert run(FakeSource(log), store, release).count("unknown_items") == 2


def test_a_broker_that_is_gone_is_said_once(
    store: StateStore,
    release: Release,
    log: Log,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(worker, "LAG_EVERY_S", 0)
    stop = threading.Event()

    class Gone(FakeSource):
        """kafka-python polls a broker that is gone without a word."""

        asked = 0

        def poll(self, timeout_s: float) -> list:
            return []

        def lag(self) -> int | None:
            self.asked += 1
            if self.asked < 4:
                raise StoreError("Kafka failed: gone")
            stop.set()
            return 7

    tally = Tally()
    given = {"candidates_per_s": 0, "tally": tally, "stop": stop}
    Worker(Gone(log), store, Follow(), Serving(release), **given).run()
    said = capsys.readouterr().err
    assert (said.count("Kafka failed"), said.count("it works again")) == (1, 1)
    assert tally.registry.get_sample_value("beforehand_worker_lag") == 7
