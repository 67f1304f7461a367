"""Which release serves: switching, keeping, unloading, refusing. ``tick`` is called by hand."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from online.releases import RETRY_S, UNUSED_FOR_S, Releases
from online.tables import Rows
from schemas.errors import ReleaseError, StoreError
from schemas.lineage import Family, Lineage, Step
from schemas.registry import Registry, ReleaseRow, Status


def row(release_id: str, path: str = "", made_at: int = 0) -> ReleaseRow:
    return ReleaseRow(release_id, path, "", {}, Status.CURRENT, made_at)


class World:
    """A registry and a loader under the test's control."""

    def __init__(self, clock, *loadable) -> None:
        self.pointer = None
        self.error = None
        self.loads = []
        self.made_at = {}
        self.loadable = {release.id: release for release in loadable}
        self.releases = Releases(self.current, self.load, clock)

    def current(self):
        if self.error:
            raise self.error
        return row(self.pointer, made_at=self.made_at.get(self.pointer, 0)) if self.pointer else None

    def load(self, wanted, beside=()):
        self.loads.append(wanted.id)
        if wanted.id not in self.loadable:
            raise ReleaseError("the signature does not match", where=wanted.id)
        return self.loadable[wanted.id]

    def point(self, release_id):
        self.pointer = release_id
        self.releases.tick()
        return self.releases.loaded


@pytest.fixture
def world(clock, release, other):
    return World(clock, release, other)


def test_nothing_is_promoted_yet(world):
    world.releases.tick()
    assert world.releases.loaded.current is None
    assert world.releases.report().problems == {}


def test_the_old_one_stays_beside_the_new_one(world, release, other):
    world.point(release.id)
    loaded = world.point(other.id)
    assert (loaded.current, loaded.previous) == (other, release)
    assert loaded.of(release.id) is release
    assert loaded.of("unknown") is None


def grown(release, withdrawn, back=()):
    """The release as one that grew; the items with the highest numbers are withdrawn."""
    step = Step("parent", 0, [*withdrawn, *back], list(back))
    family = Family(Lineage(release.model.num_items, [], list(withdrawn), [step]))
    return dataclasses.replace(release, family=family)


def masked(loaded):
    return {release_id: np.flatnonzero(mask).tolist() for release_id, mask in loaded.gone.items()}


def test_what_is_withdrawn_is_gone_from_all(world, release, other):
    """Item changes reach the current release alone, and one that a build has just made has none yet."""
    world.loadable[other.id] = grown(other, [0, 1])
    gone = sorted(release.item_numbers[one] for one in other.catalogue.item_ids[-2:])
    world.point(release.id)
    assert world.releases.loaded.gone == {}
    for current in (other.id, release.id):
        assert masked(world.point(current)) == {release.id: gone}


def test_the_newest_that_item_changes_came_to_knows(world, release, other):
    """Also when what is rolled back to had grown before."""
    last = release.model.num_items - 1
    first, second = grown(release, [0, 1]), grown(other, [0])
    third = dataclasses.replace(grown(release, [0, 1, 2]), id="third")
    world.loadable |= {one.id: one for one in (first, second, third)}
    world.made_at = {first.id: 1, second.id: 2, "third": 3}
    world.point(first.id)
    assert masked(world.point(second.id)) == {}, "what came back is shown"
    assert masked(world.point(first.id)) == {}
    world.point("third")
    loaded = world.point(second.id)
    assert {one.id for one in loaded.all} == {second.id, "third"}
    assert masked(loaded) == {second.id: [last - 2, last - 1]}


def test_a_rollback_loads_nothing(world, release, other):
    world.point(release.id)
    world.point(other.id)
    loaded = world.point(release.id)
    assert (loaded.current, loaded.previous) == (release, other)
    assert world.loads == [release.id, other.id]


def test_the_old_one_is_unloaded_when_no_state_of_it_comes(world, clock, release, other):
    world.point(release.id)
    world.point(other.id)
    clock.now += UNUSED_FOR_S - 1
    world.releases.used(release)
    clock.now += UNUSED_FOR_S - 1
    world.releases.tick()
    assert world.releases.loaded.previous is release
    clock.now += 2
    world.releases.tick()
    assert world.releases.loaded.previous is None
    assert world.releases.loaded.current is other


def test_a_bad_release_never_serves_and_says_why(world, clock, release):
    world.point(release.id)
    loaded = world.point("bad")
    assert (loaded.current, loaded.previous) == (release, None)
    assert "signature" in world.releases.report().problems["bad"]
    for _ in range(5):
        world.releases.tick()
    assert world.loads.count("bad") == 1, "it is not tried every second"
    clock.now += RETRY_S
    world.releases.tick()
    assert world.loads.count("bad") == 2
    assert world.point(release.id).current is release


def test_a_good_release_clears_the_complaint(world, release, other):
    world.point(release.id)
    world.point("bad")
    world.point(other.id)
    assert world.releases.report().problems == {}


def test_a_registry_that_can_not_be_read_changes_nothing(world, release):
    world.point(release.id)
    world.error = StoreError("the registry can't be opened")
    world.releases.tick()
    assert world.releases.loaded.current is release
    assert "registry" in world.releases.report().problems
    world.error = None
    world.releases.tick()
    assert world.releases.report().problems == {}


def test_the_real_registry_and_loader(tmp_path, monkeypatch, release, other, other_folder):
    monkeypatch.setenv("BEFOREHAND_REGISTRY", f"sqlite:///{tmp_path / 'registry.db'}")
    monkeypatch.setenv("BEFOREHAND_VERIFY_KEY", str(other_folder.parent / "none.pub"))
    registry = Registry()
    for made in (release, other):
        registry.publish(row(made.id, str(made.folder)), why="test")
    registry.promote(release.id, why="test")
    releases = Releases()
    releases.tick()
    assert "no key" in releases.report().problems[release.id]
    assert releases.loaded.current is None
    monkeypatch.setenv("BEFOREHAND_VERIFY_KEY", str(release.folder.parent / "release.pub"))
    releases = Releases()
    releases.tick()
    registry.promote(other.id, why="test")
    releases.tick()
    loaded = releases.loaded
    assert loaded.current and loaded.previous
    assert (loaded.current.id, loaded.previous.id) == (other.id, release.id)


def test_what_is_unloaded_ends_a_tick_later(world, clock, release, other):
    """Else a request that still holds it would have to free it, on the event loop."""
    ended = []

    class Watched(Rows):
        def __del__(self):
            super().__del__()
            ended.append(True)

    catalogue = msgspec.structs.replace(release.catalogue, item_ids=Watched(release.catalogue.item_ids))
    world.loadable["old"] = dataclasses.replace(release, id="old", catalogue=catalogue)
    del catalogue
    world.point("old")
    del world.loadable["old"]
    world.point(other.id)
    clock.now += UNUSED_FOR_S + 1
    world.releases.tick()
    assert world.releases.loaded.all == [other]
    assert not ended
    world.releases.tick()
    assert ended
