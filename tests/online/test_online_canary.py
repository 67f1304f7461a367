"""A canary: loaded beside the current release, for its share of the users, and never when it does not load."""

from __future__ import annotations

import asyncio

import pytest
from online_values import NOW_MS, long, make_candidates, make_state, put

from online.releases import RETRY_S, UNUSED_FOR_S, Loaded, Releases, Tried
from online.service import Recall
from online.store import Store
from schemas.api import RecallRequest
from schemas.canary import in_share
from schemas.errors import ReleaseError
from schemas.names import Rung, State
from schemas.registry import Registry, ReleaseRow, Status

USERS = [f"u{n}" for n in range(60)]
SHARE = 0.3


def row(release_id: str, path: str = "") -> ReleaseRow:
    return ReleaseRow(release_id, path, "", {}, Status.FUTURE, 0)


class World:
    """A pointer and a loader under the test's control."""

    def __init__(self, clock, *loadable) -> None:
        self.current, self.canary, self.share = loadable[0].id, None, 0.0
        self.loads = []
        self.loadable = {release.id: release for release in loadable}
        tried = lambda: Tried(row(self.canary), self.share) if self.canary else None  # noqa: E731
        self.releases = Releases(lambda: row(self.current), self.load, clock, tried)

    def load(self, wanted, beside=()):
        self.loads.append(wanted.id)
        if wanted.id not in self.loadable:
            raise ReleaseError("the signature does not match", where=wanted.id)
        return self.loadable[wanted.id]

    def tried(self, release_id, share=SHARE) -> Loaded:
        self.canary, self.share = release_id, share
        self.releases.tick()
        return self.releases.loaded


@pytest.fixture
def world(clock, release, other):
    return World(clock, release, other)


def test_the_canary_is_loaded_and_has_its_share_of_the_users(world, release, other):
    loaded = world.tried(other.id)
    assert (loaded.current, loaded.previous, loaded.canary, loaded.share) == (release, None, other, SHARE)
    assert loaded.of(other.id) is other
    for user in USERS:
        assert loaded.without_state(user) is (other if in_share(user, other.id, SHARE) else release)
    report = world.releases.report()
    assert (report.canary, report.canary_share, report.load_failures) == (other.id, SHARE, 0)
    assert set(report.answered) == {release.id, other.id}


def test_another_share_loads_nothing(world, release, other):
    world.tried(other.id)
    assert world.tried(other.id, 0.6).share == 0.6
    assert world.loads == [release.id, other.id]


def test_a_canary_that_does_not_load_takes_no_traffic_and_is_counted(world, clock, release):
    loaded = world.tried("bad")
    for _ in range(3):
        world.releases.tick()
    assert (loaded.current, loaded.canary, loaded.share) == (release, None, 0.0)
    assert all(loaded.without_state(user) is release for user in USERS)
    report = world.releases.report()
    assert "signature" in report.problems["bad"]
    assert report.load_failures == 1
    clock.now += RETRY_S
    world.releases.tick()
    assert world.releases.report().load_failures == 2
    world.tried(None)
    assert world.releases.report().problems == {}


def test_one_that_ended_answers_for_its_states_until_none_comes(world, clock, release, other):
    world.tried(other.id)
    clock.now += 10 * UNUSED_FOR_S
    world.releases.tick()
    assert world.releases.loaded.canary is other, "as long as it is tried it stays, used or not"
    loaded = world.tried(None)
    assert all(loaded.without_state(user) is release for user in USERS)
    assert loaded.of(other.id) is other
    clock.now += UNUSED_FOR_S - 1
    world.releases.used(other)
    clock.now += UNUSED_FOR_S - 1
    world.releases.tick()
    assert world.releases.loaded.canary is other
    clock.now += 2
    world.releases.tick()
    assert world.releases.loaded.all == [release]
    assert world.releases.report().answered == {release.id: 0}


def test_a_promoted_canary_is_not_loaded_again(world, release, other):
    world.tried(other.id)
    world.current = other.id
    loaded = world.tried(None)
    assert (loaded.current, loaded.previous, loaded.canary, loaded.share) == (other, release, None, 0.0)
    assert world.loads == [release.id, other.id]


def test_the_one_before_can_be_tried_again(world, release, other):
    world.current = other.id
    world.tried(None)
    world.current = release.id
    loaded = world.tried(None)
    assert (loaded.current, loaded.previous) == (release, other)
    loaded = world.tried(other.id)
    assert loaded.all == [release, other]
    assert loaded.canary is other


def test_a_canary_that_is_current_is_none(world, release):
    assert world.tried(release.id).all == [release]


def test_the_real_registry(tmp_path, monkeypatch, release, other):
    monkeypatch.setenv("BEFOREHAND_REGISTRY", f"sqlite:///{tmp_path / 'registry.db'}")
    monkeypatch.setenv("BEFOREHAND_VERIFY_KEY", str(release.folder.parent / "release.pub"))
    registry = Registry()
    for made in (release, other):
        registry.publish(row(made.id, str(made.folder)), why="test")
    registry.promote(release.id, why="test")
    registry.canary(other.id, 0.25, why="test")
    releases = Releases()
    releases.tick()
    loaded = releases.loaded
    assert loaded.current and loaded.canary
    assert (loaded.current.id, loaded.canary.id, loaded.share) == (release.id, other.id, 0.25)
    registry.end_canary(why="test")
    releases.tick()
    assert releases.loaded.share == 0.0


@pytest.fixture
def ask(plan, stored, redis_url, world, other):
    """Ask for one user, and give what the metrics say."""

    async def all_of(users):
        store = Store(redis_url, timeout_s=2, cache_bytes=0)
        await store.start()
        recall = Recall(plan, store, world.releases, now_ms=lambda: NOW_MS)
        try:
            answers = {user: await recall.answer(RecallRequest(user_id=user, k=5), long()) for user in users}
        finally:
            await store.close()
            recall.decoder.close()
        return answers, recall.metrics.text().decode()

    world.tried(other.id)
    return lambda users: asyncio.run(all_of(users))


def test_a_user_with_a_state_is_answered_by_its_release_and_one_without_by_the_users(ask, stored, release, other):
    tried = [user for user in USERS if in_share(user, other.id, SHARE)]
    rest = [user for user in USERS if user not in tried]
    for user, made_by in ((tried[0], other), (tried[1], release), (rest[0], release), (rest[1], other)):
        put(stored, make_state(made_by, user))
        put(stored, make_candidates(made_by, user))
    answers, text = ask([*tried[:4], *rest[:4]])
    found = {user: answer.release for user, answer in answers.items()}
    # tried[1] is not encoded again yet; rest[1] was the canary's before its share shrank
    assert found == {
        **dict.fromkeys(tried[:4], other.id),
        **dict.fromkeys(rest[:4], release.id),
        tried[1]: release.id,
        rest[1]: other.id,
    }
    assert all(answers[user].assets["intent_state"].state is State.FRESH for user in (*tried[:2], *rest[:2]))
    assert f'beforehand_answers_total{{release="{other.id}",rung="generate"}} 4.0' in text


def test_a_list_of_another_release_than_the_canary_is_not_mixed_in(ask, stored, release, other):
    user = next(user for user in USERS if in_share(user, other.id, SHARE))
    put(stored, make_candidates(release, user))
    answers, _ = ask([user])
    assert answers[user].release == other.id
    assert answers[user].assets["candidates"].state is State.MISMATCHED
    assert answers[user].rung is Rung.GENERATE
