"""A replacement ends well or goes back, whatever fails on the way; the rule by which windows are compared."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from schemas.errors import BeforehandError, StoreError
from schemas.plan import load_plan
from schemas.window import Window, WindowEvent
from streaming import resume, upgrade
from streaming.flink import Flink, Job
from streaming.probe import kept
from streaming.resume import Deployment, Made, keep_jars
from streaming.sql import JobSettings

SETTINGS = JobSettings.of(load_plan(), "broker:9092")
OLDER, OLD, NEW = (Made(SETTINGS, [f"{name}.jar"]) for name in ("older", "old", "new"))
JOB = Job("first", "w", "RUNNING", 0)


class World:
    """A cluster, a client and the windows; ``breaks`` names what fails, for the jobs made of ``bad``."""

    def __init__(self, breaks: str = "", bad: tuple[Made, ...] = (NEW,)) -> None:
        self.url = "flink"
        self.breaks, self.bad = breaks, bad
        self.jobs: dict[str, Made] = {"first": OLD}
        self.running = {"first"}

    def fail(self, what: str, made: Made) -> None:
        if what == self.breaks and made in self.bad:
            raise StoreError(f"{what} broke")

    def submit(self, made: Made, _url: str, start_from: str | None) -> str:
        assert start_from == "savepoint"
        self.fail("submit", made)
        job_id = f"job-{len(self.jobs)}"
        self.jobs[job_id] = made
        self.running.add(job_id)
        return job_id

    def savepoint(self, job_id: str, _timeout_s: float, *, stop: bool, target: str | None) -> str:
        assert stop
        self.fail("savepoint", NEW)
        self.running.remove(job_id)
        return "savepoint"

    def wait_running(self, job_id: str, _timeout_s: float) -> str:
        self.fail("start", self.jobs[job_id])
        return "RUNNING"

    def restored_from(self, job_id: str) -> str | None:
        return None if self.breaks == "restore" and self.jobs[job_id] in self.bad else "savepoint"

    def make_checkpoint(self, job_id: str, _timeout_s: float) -> None:
        self.fail("checkpoint", self.jobs[job_id])

    def num_restarts(self, job_id: str) -> int:
        return int(self.breaks == "restarts" and self.jobs[job_id] in self.bad)

    def cause(self, _job_id: str, _state: str) -> str:
        return "it fell over"

    def cancel(self, job_id: str, _timeout_s: float) -> None:
        self.running.remove(job_id)

    def sample(self, num_users: int) -> dict[str, Window]:
        self.fail("sample", NEW)
        return {"u": Window([])}

    def check(self, before: Mapping[str, Window], size: int, timeout_s: float) -> None:
        assert (list(before), size) == (["u"], SETTINGS.window)
        (job_id,) = self.running
        self.fail("windows", self.jobs[job_id])


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    resume.remember(Deployment("first", made=OLD))
    return tmp_path


def replace(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    monkeypatch.setattr(upgrade, "submit_apart", world.submit)
    replacement = upgrade.Replacement(cast(Flink, world), world, num_users=1, within_s=1)
    return replacement.run(Deployment("first", made=OLD, previous=OLDER), OLD, NEW, None)


def test_a_good_job_takes_over_and_the_old_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    result = replace(world, monkeypatch)
    assert result is not None
    assert (result["job_id"], result["replaced"], result["users_checked"]) == ("job-1", "first", 1)
    assert world.running == {"job-1"}
    assert resume.recall() == Deployment("job-1", started_from="savepoint", made=NEW, previous=OLD)


@pytest.mark.parametrize("breaks", ["submit", "start", "restore", "windows", "checkpoint", "restarts"])
def test_a_bad_job_gives_way_to_the_old_one(breaks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(breaks)
    with pytest.raises(StoreError, match="old job runs again"):
        replace(world, monkeypatch)
    (running,) = world.running
    assert world.jobs[running] == OLD
    assert resume.recall() == Deployment(running, started_from="savepoint", made=OLD, previous=OLDER)


@pytest.mark.parametrize("breaks", ["sample", "savepoint"])
def test_what_fails_before_the_stop_touches_nothing(breaks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(breaks)
    with pytest.raises(StoreError, match=breaks):
        replace(world, monkeypatch)
    assert (world.running, resume.recall()) == ({"first"}, Deployment("first", made=OLD))


@pytest.mark.parametrize("breaks", ["submit", "start"])
def test_when_nothing_starts_the_next_deploy_finds_the_savepoint(breaks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(breaks, bad=(OLD, NEW))
    with pytest.raises(StoreError, match="stream deploy"):
        replace(world, monkeypatch)
    last = resume.recall()
    assert last is not None
    assert "savepoint" in (last.stopped_at, last.started_from)
    assert (last.made, last.previous) == (OLD, OLDER)


def test_a_job_from_elsewhere_is_refused() -> None:
    with pytest.raises(BeforehandError, match="no way back"):
        upgrade.made_of(Job("another", "w", "RUNNING", 0))
    assert upgrade.made_of(JOB) == (Deployment("first", made=OLD), OLD)


def test_jars_are_kept_by_their_content(tmp_path: Path) -> None:
    jar = tmp_path / "job.jar"
    jar.write_bytes(b"one")
    (first,) = keep_jars([jar])
    assert keep_jars([jar]) == [first]
    jar.write_bytes(b"two")
    (second,) = keep_jars([jar])
    assert (first.read_bytes(), second.read_bytes(), second.name) == (b"one", b"two", "job.jar")


def window(numbers: list[int], size: int) -> Window:
    newest = sorted(set(numbers), key=lambda number: (number // 3, f"e{number}"), reverse=True)[:size]
    return Window([WindowEvent(f"e{number}", "i", "click", number // 3) for number in newest])


def test_a_window_is_kept_with_newer_late_and_fewer_events() -> None:
    rng = random.Random(23)
    for _ in range(2_000):
        size, new_size = rng.randint(1, 6), rng.randint(1, 6)
        first = [rng.randrange(30) for _ in range(rng.randint(1, 12))]
        later = [rng.randrange(30) for _ in range(rng.randint(0, 5))]
        old = window(first, size)
        inside = [int(one.event_id[1:]) for one in old.events]
        assert kept(old, window([*inside, *later], new_size), new_size)


def test_a_lost_or_changed_window_is_seen() -> None:
    old = window([1, 5, 9, 13], 5)
    assert not kept(old, window([13], 5), 5), "the state was lost: only the event sent again is there"
    assert not kept(old, window([1, 5, 13], 5), 5)
    assert not kept(old, Window([]), 5)
    assert not kept(old, Window(old.events[::-1]), 5)
    assert kept(old, window([5, 9, 13], 3), 3)
