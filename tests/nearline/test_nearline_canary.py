"""A canary in the worker: who is encoded by what, and what is encoded again when its share changes."""

from __future__ import annotations

import threading

import msgspec
import pytest
import redis
from nearline_fakes import AT, FakeSource, Killed, Log, window

from nearline.metrics import Tally
from nearline.release import Release
from nearline.serving import Serving
from nearline.store import StateStore
from nearline.worker import Worker
from schemas.canary import in_share
from schemas.keys import candidates_key, state_key
from schemas.state import decode_candidates, decode_state

USERS = [f"u{n}" for n in range(40)]
OLD, NEW = "current", "canary"


class Follow:
    """Hands out each change once."""

    def __init__(self, *changes: Serving) -> None:
        self.changes = list(changes)

    def newer(self, in_use: Serving) -> Serving | None:
        return self.changes.pop(0) if self.changes else None


def renamed(release: Release, name: str) -> Release:
    manifest = msgspec.structs.replace(release.manifest, id=name)
    return Release(manifest, release.encoder, release.decoder, release.arrays, release.item_number, release.users)


@pytest.fixture
def releases(release: Release) -> tuple[Release, Release]:
    return renamed(release, OLD), renamed(release, NEW)


@pytest.fixture
def log(release: Release) -> Log:
    items, log = list(release.item_number), Log()
    for n, user in enumerate(USERS):
        log.append(user, window(items[n % 20 : n % 20 + 5], AT + n, arrived_at=AT))
    return log


def run(source: FakeSource, store: StateStore, serving: Serving, *changes: Serving, lists: float = 0) -> Tally:
    tally, stop = Tally(), threading.Event()
    given = {"candidates_per_s": lists, "tally": tally, "stop": stop}
    Worker(source, store, Follow(*changes), serving, **given).run(once=True)
    return tally


def releases_of(client: redis.Redis) -> dict[str, str]:
    return {user: decode_state(client.get(state_key(user))).release for user in USERS}


def expected(share: float) -> dict[str, str]:
    return {user: NEW if in_share(user, NEW, share) else OLD for user in USERS}


def test_begin_grow_shrink_and_end_encode_only_the_users_concerned(
    client: redis.Redis, store: StateStore, releases: tuple[Release, Release], log: Log
) -> None:
    old, new = releases
    run(FakeSource(log), store, Serving(old))
    before = expected(0.0)
    assert releases_of(client) == before
    for share in (0.2, 0.6, 0.3, 0.0):
        now = expected(share)
        serving = Serving(old, new, share) if share else Serving(old)
        tally = run(FakeSource(log), store, serving)
        assert releases_of(client) == now
        concerned = sum(now[user] != before[user] for user in USERS)
        assert tally.count("states") == concerned > 0
        assert log.committed == len(USERS)
        before = now


def test_a_promotion_of_the_canary_leaves_its_users_alone(
    client: redis.Redis, store: StateStore, releases: tuple[Release, Release], log: Log
) -> None:
    old, new = releases
    run(FakeSource(log), store, Serving(old, new, 0.4))
    tally = run(FakeSource(log), store, Serving(old, new, 0.4), Serving(new))
    assert set(releases_of(client).values()) == {NEW}
    assert tally.count("states") == list(expected(0.4).values()).count(OLD)


def test_a_worker_killed_after_a_write_leaves_no_canary_behind(
    client: redis.Redis, store: StateStore, releases: tuple[Release, Release], log: Log
) -> None:
    """The canary's states are written and not committed; then it ends, and the pointer is what it was."""
    old, new = releases
    run(FakeSource(log), store, Serving(old))
    with pytest.raises(Killed):
        run(FakeSource(log, kill_at_commit=True), store, Serving(old, new, 0.5))
    assert NEW in releases_of(client).values()
    run(FakeSource(log), store, Serving(old))
    assert releases_of(client) == expected(0.0)


def test_a_state_and_its_list_are_of_one_release(
    client: redis.Redis, store: StateStore, releases: tuple[Release, Release], log: Log
) -> None:
    old, new = releases
    serving = Serving(old, new, 0.5)
    tally = run(FakeSource(log, max_records=10), store, Serving(old), serving, lists=1000)
    states = releases_of(client)
    assert states == expected(0.5)
    lists = [decode_candidates(raw) for user in USERS if (raw := client.get(candidates_key(user)))]
    assert {one.release for one in lists} == {OLD, NEW}
    assert all(states[one.user_id] == one.release for one in lists)
    shares = {name: tally.registry.get_sample_value("beforehand_worker_release", {"id": name}) for name in (OLD, NEW)}
    assert shares == {OLD: 0.5, NEW: 0.5}


def test_new_windows_go_to_the_users_release_and_tombstones_still_delete(
    client: redis.Redis, store: StateStore, releases: tuple[Release, Release], log: Log, release: Release
) -> None:
    old, new = releases
    serving = Serving(old, new, 0.5)
    run(FakeSource(log), store, serving)
    late = window(list(release.item_number)[:3], AT + 1000)
    for user in USERS:
        log.append(user, late)
    log.append(USERS[0], None)
    run(FakeSource(log), store, serving)
    assert client.exists(state_key(USERS[0])) == 0
    left = {user: decode_state(client.get(state_key(user))) for user in USERS[1:]}
    assert {user: one.release for user, one in left.items()} == {user: expected(0.5)[user] for user in USERS[1:]}
    assert {one.watermark for one in left.values()} == {AT + 1000}
