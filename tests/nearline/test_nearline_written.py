"""A Redis that lost what it had is filled again by the worker that wrote it, or by the next one."""

from __future__ import annotations

import threading

import pytest
import redis
from nearline_fakes import AT, FakeSource, Log, window
from test_nearline_worker import Follow, all_states, items, log, run

from nearline.metrics import Tally
from nearline.release import Release
from nearline.serving import Serving
from nearline.store import Forgotten, StateStore
from nearline.worker import Worker
from nearline.written import WRITTEN_KEY, Place, WrittenTo
from schemas.keys import state_key

__all__ = ["items", "log"]  # fixtures


def test_notes_go_forward_and_a_note_behind_is_a_loss(client: redis.Redis) -> None:
    notes = WrittenTo(client)
    assert notes.note({0: Place(0, 5), 3: Place(0, 7)}) == {}
    assert notes.note({0: Place(5, 9), 3: Place(7, 7)}) == {}
    assert notes.lost({0: Place(9, 9), 3: Place(7, 20), 4: Place(0, 0)}) == {}
    client.hset(WRITTEN_KEY, "0", 6)  # an older snapshot
    assert notes.lost({0: Place(9, 9), 3: Place(7, 7)}) == {0: 6}
    assert notes.note({0: Place(9, 12), 3: Place(7, 8)}) == {0: 6}, "it is not noted over"
    client.flushall()
    assert notes.note({0: Place(9, 12), 3: Place(8, 8)}) == {0: 0, 3: 0}
    assert notes.lost({0: Place(0, 4)}) == {}, "a partition of which nothing was written yet"


def test_an_empty_redis_is_filled_again_with_nothing_new_in_the_topic(
    client: redis.Redis, store: StateStore, release: Release, log: Log
) -> None:
    run(FakeSource(log), store, release)
    before = all_states(client)
    client.flushall()
    tally = run(FakeSource(log), store, release)
    assert all_states(client) == before
    assert tally.count("lost_partitions") == 1
    assert tally.summary()["event_to_visible_ms"]["p50"] is None, "old events say nothing about freshness"
    assert run(FakeSource(log), store, release).count("states") == 0


def test_a_loss_under_traffic_is_made_good(client: redis.Redis, store: StateStore, release: Release, log: Log) -> None:
    run(FakeSource(log), store, release)
    before = all_states(client)
    client.flushall()
    log.append("new", window(list(release.item_number)[:3], AT))
    run(FakeSource(log), store, release)
    found = all_states(client)
    assert found.pop("new").watermark == AT
    assert found == before


def test_an_older_snapshot_costs_only_what_came_after_it(
    client: redis.Redis, store: StateStore, release: Release, log: Log
) -> None:
    later = [log.records.pop() for _ in range(10)][::-1]
    run(FakeSource(log), store, release)
    saved = {key: client.dump(key) for key in client.scan_iter()}
    log.records += later
    run(FakeSource(log), store, release)
    before = all_states(client)
    client.flushall()
    for key, value in saved.items():
        client.restore(key, 0, value)
    assert run(FakeSource(log), store, release).count("states") == len(later)
    assert all_states(client) == before


def test_who_was_forgotten_stays_so(client: redis.Redis, store: StateStore, release: Release, log: Log) -> None:
    def work() -> None:
        worker = Worker(
            FakeSource(log),
            store,
            Follow(),
            Serving(release),
            candidates_per_s=0,
            tally=Tally(),
            stop=threading.Event(),
        )
        worker.remember([Forgotten("u3", at=AT + 1_000)])
        worker.run(once=True)

    work()
    client.flushall()
    work()
    assert set(all_states(client)) == {f"u{n}" for n in range(30)} - {"u3"}
    assert client.exists(state_key("u3")) == 0


@pytest.mark.parametrize("noted", [b"5", b"30", None])
def test_a_worker_that_takes_over_looks_before_it_trusts_the_offsets(
    client: redis.Redis, store: StateStore, release: Release, log: Log, noted: bytes | None
) -> None:
    run(FakeSource(log), store, release)
    if noted is None:
        client.delete(WRITTEN_KEY)
    else:
        client.hset(WRITTEN_KEY, "0", noted)
    expected = {b"5": 25, b"30": 0, None: 30}[noted]
    assert run(FakeSource(log), store, release).count("states") == expected
