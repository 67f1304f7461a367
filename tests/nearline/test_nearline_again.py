"""Encoding again after a promotion: the latest users first, new windows before them; a grown release asks for none."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
import redis
from nearline_fakes import AT, FakeSource, Killed, Log, window
from test_nearline_canary import Follow, renamed
from test_nearline_worker import all_states

from nearline import worker
from nearline.metrics import Tally
from nearline.release import Release
from nearline.serving import Serving
from nearline.store import StateStore
from nearline.worker import Worker
from schemas.keys import state_key
from schemas.lineage import Family, Lineage, Step
from schemas.state import decode_state

USERS = [f"u{n}" for n in range(90)]


@pytest.fixture
def log(release: Release) -> Log:
    items, log = list(release.item_number), Log()
    for n, user in enumerate(USERS):
        log.append(user, window(items[n % 40 : n % 40 + 1 + n % 7], AT + n, arrived_at=AT))
    return log


def run(source: FakeSource, store: StateStore, serving: Serving, *changes: Serving) -> Tally:
    tally, stop = Tally(), threading.Event()
    Worker(source, store, Follow(*changes), serving, candidates_per_s=0, tally=tally, stop=stop).run(once=True)
    return tally


class Written:
    """A store that notes in which order users were written."""

    def __init__(self, store: StateStore) -> None:
        self.store, self.users = store, list[tuple[str, str]]()

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def write_states(self, states):
        self.users += [(state.user_id, state.release) for state, _ in states]
        return self.store.write_states(states)


def grown(release: Release, name: str, *parents: str) -> Release:
    steps = [Step(parent, 0) for parent in parents]
    return replace(renamed(release, name), family=Family(Lineage(release.model.num_items, [], [], steps)))


def test_the_latest_are_first_and_new_windows_do_not_wait(
    store: StateStore, release: Release, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SLICE", 4)
    old, new = renamed(release, "old"), renamed(release, "new")
    run(FakeSource(log), store, Serving(old))
    source, written = FakeSource(log, max_records=30), Written(store)
    items, slices = list(release.item_number), [0]

    def reread(self: FakeSource):
        slices[0] += 1
        if slices[0] == 2:
            log.append("late", window(items[:3], AT))
        return FakeSource.reread(self)

    source.reread = reread.__get__(source)
    run(source, written, Serving(new))
    assert {release for _, release in written.users} == {"new"}
    order = [user for user, _ in written.users]
    assert sorted(order) == sorted([*USERS, "late"])
    assert 30 <= order.index("late") < 60, "it came when a third was through"
    again = [user for user in order if user != "late"]
    for place, third in enumerate((USERS[60:], USERS[30:60], USERS[:30])):
        assert set(again[30 * place : 30 * place + 30]) == set(third)
    lengths = [1 + USERS.index(user) % 7 for user in again[:30]]
    assert lengths[::4] == sorted(lengths[::4], reverse=True), "of these the most active first, slice by slice"


def test_a_state_is_as_old_as_its_window_and_one_too_old_is_not_encoded(
    client: redis.Redis, store: StateStore, release: Release, log: Log
) -> None:
    now = int(time.time() * 1000)
    log.records = [replace(one, timestamp=now - 100 * one.offset) for one in log.records]
    log.records[3] = replace(log.records[3], timestamp=now - 60_001)  # past the store's lifetime
    run(FakeSource(log), store, Serving(renamed(release, "old")))
    before = set(all_states(client))
    assert before == set(USERS) - {"u3"}
    tally = run(FakeSource(log), store, Serving(renamed(release, "new")))
    after = {user: decode_state(client.get(state_key(user))) for user in before}
    assert all(one.made_at == now - 100 * USERS.index(user) for user, one in after.items())
    assert {one.release for one in after.values()} == {"new"}
    assert tally.count("reencoded") == len(before)


def test_a_release_that_grew_asks_for_no_encoding_but_of_what_was_left(
    client: redis.Redis, store: StateStore, release: Release, log: Log
) -> None:
    base = renamed(release, "base")
    run(FakeSource(log), store, Serving(base))
    child, grandchild = grown(release, "child", "base"), grown(release, "grandchild", "base", "child")
    assert run(FakeSource(log), store, Serving(base), Serving(child)).count("states") == 0
    assert run(FakeSource(log), store, Serving(grandchild)).count("states") == 0
    assert {one.release for one in all_states(client).values()} == {"base"}
    assert log.label == "grandchild"
    log.append("u0", window(list(release.item_number)[:2], AT + 1000))
    run(FakeSource(log), store, Serving(grandchild))
    assert all_states(client)["u0"].release == "grandchild"
    # Back to the child: only what the grandchild made is of no use to it.
    assert run(FakeSource(log), store, Serving(child)).count("reencoded") > 0
    assert {one.release for one in all_states(client).values()} == {"child"}


def test_a_promotion_cut_short_goes_on_under_the_release_that_grew_from_it(
    client: redis.Redis, store: StateStore, release: Release, log: Log
) -> None:
    run(FakeSource(log), store, Serving(renamed(release, "old")))
    with pytest.raises(Killed):
        run(FakeSource(log, kill_at_commit=True, max_records=20), store, Serving(renamed(release, "base")))
    assert {one.release for one in all_states(client).values()} == {"old", "base"}
    tally = run(FakeSource(log), store, Serving(grown(release, "child", "base")))
    assert {one.release for one in all_states(client).values()} <= {"base", "child"}
    assert tally.count("reencoded") == len(USERS), "who was written is not known"
