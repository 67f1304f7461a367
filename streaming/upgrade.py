"""``stream upgrade`` and ``stream rollback``: one job is replaced by another, which takes over its state or goes again.

The old job stops with a savepoint, the new one starts from it and must show that it is well: it runs, its state is from
that savepoint, a checkpoint works, nothing restarted, and the windows of some users are what they were. Otherwise the
old job runs again from the same savepoint. Between the two no event is lost: the topic keeps them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

import msgspec

from schemas.cli import Result, say, step
from schemas.errors import BeforehandError, StoreError
from schemas.window import Window
from streaming import resume
from streaming.flink import Flink, Job
from streaming.resume import Deployment, Made
from streaming.submit import submit_apart

WAIT_S = 120.0


class Windows(Protocol):
    """Compares windows before and after (``streaming.probe.Probe``)."""

    def sample(self, num_users: int) -> dict[str, Window]:
        """The windows of some users."""
        ...

    def check(self, before: Mapping[str, Window], size: int, timeout_s: float) -> None:
        """Raises ``StoreError`` when the job has others now."""
        ...


def made_of(job: Job) -> tuple[Deployment, Made]:
    """What this state folder knows of the running job.

    Raises:
        BeforehandError: it was deployed from elsewhere, so there would be no way back.
    """
    last = resume.recall()
    if last is None or last.job_id != job.job_id or last.made is None:
        raise BeforehandError(
            f"job {job.job_id} was not deployed from this state folder: there would be no way back",
            where="stream/deployment.json",
            mend="Upgrade from where it was deployed, or `stream stop --savepoint` and `stream deploy`.",
        )
    return last, last.made


class Replacement:
    """One replacement of a job."""

    def __init__(self, flink: Flink, windows: Windows, *, num_users: int, within_s: float) -> None:
        """``within_s``: the new job must be well after so long."""
        self._flink = flink
        self._windows = windows
        self._num_users = num_users
        self._within_s = within_s

    def run(self, deployed: Deployment, old: Made, new: Made, to: str | None) -> Result:
        """Replace the job ``deployed``, which is made of ``old``.

        Raises:
            BeforehandError: the new job is not well; whether the old one runs again is in the message.
        """
        with step("sample") as told:
            before = self._windows.sample(self._num_users)
            told(f"windows of {len(before)} users")
        stopped_at = time.monotonic()
        with step("stop") as told:
            path = self._flink.savepoint(deployed.job_id, WAIT_S, stop=True, target=to)
            stopped = msgspec.structs.replace(deployed, started_from=None, stopped_at=path)
            resume.remember(stopped)
            told(f"state in {path}")
        try:
            job_id = self._start(new, path, old, self._within_s)
            down_s = time.monotonic() - stopped_at
            with step("verify") as told:
                self._verify(job_id, new, path, before)
                told("it runs, from that savepoint, and the windows are what they were")
        except BeforehandError as error:
            raise self._go_back(stopped, old, path, error) from None
        return {
            "job_id": job_id,
            "state": "RUNNING",
            "changed": True,
            "replaced": deployed.job_id,
            "savepoint": path,
            "users_checked": len(before),
            "down_s": round(down_s, 3),
        }

    def _start(self, made: Made, path: str, previous: Made | None, within_s: float) -> str:
        with step("start") as told:
            job_id = submit_apart(made, self._flink.url, path)
            resume.remember(Deployment(job_id, started_from=path, made=made, previous=previous))
            self._flink.wait_running(job_id, within_s)
            told(f"job {job_id}")
        return job_id

    def _verify(self, job_id: str, made: Made, path: str, before: Mapping[str, Window]) -> None:
        restored = self._flink.restored_from(job_id)
        if restored != path:
            raise StoreError("the new job did not take over the state", value=restored)
        self._windows.check(before, made.settings.window, self._within_s)
        self._flink.make_checkpoint(job_id, self._within_s)
        if restarts := self._flink.num_restarts(job_id):
            raise StoreError(f"the new job restarted {restarts} times: {self._flink.cause(job_id, 'RUNNING')}")

    def _go_back(self, stopped: Deployment, old: Made, path: str, error: BeforehandError) -> BeforehandError:
        say(f"the new job is not well: {error.problem}")
        failed = resume.recall()
        with suppress(StoreError):  # it may never have been submitted, or be over already
            if failed and failed.started_from == path:
                self._flink.cancel(failed.job_id, WAIT_S)
        try:
            job_id = self._start(old, path, stopped.previous, max(self._within_s, WAIT_S))
        except BeforehandError as worse:
            if failed and resume.recall() == failed:  # it was not even submitted
                resume.remember(msgspec.structs.replace(stopped, job_id=failed.job_id))
            return StoreError(
                f"the new job is not well ({error.problem}), and the old one does not start: {worse.problem}",
                where=path,
                mend="Nothing is lost: `stream deploy` starts from the savepoint.",
            )
        return StoreError(
            f"the new job is not well: {error.problem}",
            where=f"{self._flink.url} job {job_id}",
            mend="The old job runs again from the savepoint; nothing is lost. Mend the cause and upgrade again.",
        )
