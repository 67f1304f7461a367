"""A deployment takes up the state that is there, and never starts without it unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from schemas.errors import StoreError
from streaming import resume
from streaming.flink import Flink, Job
from streaming.resume import Deployment
from streaming.sql import JOB_NAME


class Cluster:
    """What ``choose`` asks of a cluster."""

    def __init__(self, checkpoints: dict[str, str | None], folder: str = "") -> None:
        self.checkpoints = checkpoints
        self.folder = folder

    def jobs(self, name: str) -> list[Job]:
        assert name == JOB_NAME
        return [Job(job_id, name, "FAILED", 0) for job_id in self.checkpoints]

    def checkpoint(self, job_id: str) -> str | None:
        return self.checkpoints[job_id]

    def settings(self) -> dict[str, str]:
        return {"execution.checkpointing.dir": self.folder}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    return tmp_path


def choose(cluster: Cluster, *, named: str | None = None, fresh: bool = False) -> str | None:
    return resume.choose(cast(Flink, cluster), named=named, fresh=fresh)


def test_nothing_known_starts_anew() -> None:
    assert resume.recall() is None
    assert choose(Cluster({})) is None


def test_what_a_stop_left_comes_first() -> None:
    resume.remember(Deployment("a", stopped_at="savepoint"))
    assert choose(Cluster({"a": "checkpoint"})) == "savepoint"
    assert choose(Cluster({})) == "savepoint"


def test_a_failed_job_goes_on_from_its_checkpoint() -> None:
    resume.remember(Deployment("a"))
    assert choose(Cluster({"a": "chk-7"})) == "chk-7"


def test_another_state_folder_asks_the_cluster() -> None:
    assert choose(Cluster({"newest": "chk-9", "older": "chk-1"})) == "chk-9"


def test_a_job_that_failed_before_it_had_state_is_passed_over() -> None:
    wrong_path = {"wrong --from": None}
    assert choose(Cluster({**wrong_path, "before": "chk-9"})) == "chk-9"
    resume.remember(Deployment("a", stopped_at="savepoint"))
    assert choose(Cluster(wrong_path)) == "savepoint"


def test_a_job_without_a_checkpoint_hands_on_what_it_was_started_from() -> None:
    resume.remember(Deployment("a", started_from="savepoint"))
    assert choose(Cluster({"a": None})) == "savepoint"
    assert choose(Cluster({"a": "chk-3"})) == "chk-3"
    assert (resume.start_of("a"), resume.start_of("b")) == ("savepoint", None)


def test_a_newer_job_from_elsewhere_wins_and_an_older_one_does_not() -> None:
    resume.remember(Deployment("a", stopped_at="savepoint"))
    assert choose(Cluster({"newer": "chk-9", "a": "chk-4", "older": "chk-1"})) == "chk-9"
    assert choose(Cluster({"a": "chk-4", "older": "chk-1"})) == "savepoint"


def test_a_named_path_or_fresh_wins() -> None:
    resume.remember(Deployment("a", stopped_at="savepoint"))
    assert choose(Cluster({}), named="mine") == "mine"
    assert choose(Cluster({}), fresh=True) is None


def test_after_a_restart_of_the_cluster_the_newest_complete_checkpoint_is_found(state: Path) -> None:
    for number in (2, 9, 10):
        (state / "checkpoints" / "a" / f"chk-{number}").mkdir(parents=True)
    for number in (2, 9):  # the tenth was not finished
        (state / "checkpoints" / "a" / f"chk-{number}" / "_metadata").touch()
    resume.remember(Deployment("a"))
    assert choose(Cluster({}, (state / "checkpoints").as_uri())) == (state / "checkpoints" / "a" / "chk-9").as_uri()


def test_a_job_that_never_made_a_checkpoint_starts_anew(state: Path) -> None:
    resume.remember(Deployment("a"))
    assert choose(Cluster({}, (state / "checkpoints").as_uri())) is None


@pytest.mark.parametrize("folder", ["s3://bucket/checkpoints", ""])
def test_state_that_cannot_be_looked_for_is_not_dropped(folder: str) -> None:
    resume.remember(Deployment("a"))
    with pytest.raises(StoreError, match=r"--from PATH.*--fresh"):
        choose(Cluster({}, folder))


def test_the_second_deployment_waits() -> None:
    import fcntl

    with resume.one_at_a_time():
        path = resume._path().with_suffix(".lock")
        with path.open("a") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
