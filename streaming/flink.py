"""Flink's REST interface, as much of it as the verbs need; standard library only."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from schemas.errors import StoreError

TERMINAL = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})
REQUEST_TIMEOUT_S = 10.0
POLL_S = 0.25

# Flink answers from caches that are up to 3 s old (web.refresh-interval, rest.cache.checkpoint-statistics.timeout).
CACHE_S = 3.2


class Job(msgspec.Struct, frozen=True):
    """One job that the cluster knows, running or not."""

    job_id: str
    name: str
    state: str
    started_ms: int

    @property
    def over(self) -> bool:
        """Whether it will never run again."""
        return self.state in TERMINAL


class Flink:
    """A cluster at ``url``. Every method raises ``StoreError`` when it does not answer or refuses."""

    def __init__(self, url: str) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")

    def ask(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        """The JSON answer to GET ``path``, or to POST when there is a body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data=data, headers=headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:  # noqa: S310
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")
            raise StoreError(f"Flink refused: {_first_error(said)}", where=f"{self.url}{path}") from None
        except (OSError, ValueError) as error:
            mend = "Run `./beforehand up flink`, or name a running cluster with --flink."
            raise StoreError(f"Flink does not answer: {error}", where=self.url, mend=mend) from None

    def jobs(self, name: str) -> list[Job]:
        """The jobs of this name, the newest first."""
        found = [Job(j["jid"], j["name"], j["state"], j["start-time"]) for j in self.ask("/jobs/overview")["jobs"]]
        return sorted((job for job in found if job.name == name), key=lambda job: job.started_ms, reverse=True)

    def settings(self) -> dict[str, str]:
        """The cluster's own configuration."""
        return {entry["key"]: entry["value"] for entry in self.ask("/jobmanager/config")}

    def wait_running(self, job_id: str, timeout_s: float) -> str:
        """Wait until every task runs; returns the job's state.

        Raises:
            StoreError: when it fails, or still restarts when the time is over; the message holds the cause.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            job = self.ask(f"/jobs/{job_id}")
            if job["state"] == "RUNNING" and all(vertex["status"] == "RUNNING" for vertex in job["vertices"]):
                return "RUNNING"
            if job["state"] in TERMINAL or time.monotonic() > deadline:
                raise self._not_running(job_id, job)
            time.sleep(POLL_S)

    def _not_running(self, job_id: str, job: dict[str, Any]) -> StoreError:
        cause = self.cause(job_id, job["state"])
        free = self.ask("/overview")["slots-available"]
        if job["state"] in TERMINAL:
            mend = "Mend the cause and deploy again."
        elif cause is None and free == 0:
            mend = "No task slot is free: end another job, add a TaskManager, or lower --parallelism."
        else:
            mend = "It goes on trying; `./beforehand stream status` shows when it runs, `stream stop` ends it."
        problem = f"the job does not run, it is {job['state']}: {cause or 'Flink names no cause'}"
        return StoreError(problem, where=f"{self.url} job {job_id}", mend=mend)

    def cause(self, job_id: str, state: str) -> str | None:
        """The innermost cause of the job's newest failure, in one line. A FAILED job has one: it is waited for."""
        deadline = time.monotonic() + (2 * CACHE_S if state == "FAILED" else 0)
        while True:
            history = self.ask(f"/jobs/{job_id}/exceptions").get("exceptionHistory", {}).get("entries", [])
            if history:
                return root_cause(history[0]["stacktrace"])
            if time.monotonic() >= deadline:
                return None
            time.sleep(POLL_S)

    def checkpoint(self, job_id: str) -> str | None:
        """The newest state of a job that is over: checkpoint, savepoint or what it started from.

        For jobs that the cluster remembers. It takes some seconds, lest an older checkpoint be named that is deleted.
        """
        path = f"/jobs/{job_id}/checkpoints"
        self.ask(path)
        time.sleep(CACHE_S)
        latest = self.ask(path)["latest"]
        newest = [latest[kind] for kind in ("restored", "completed", "savepoint") if latest.get(kind)]
        newest.sort(key=lambda one: one["id"])
        return newest[-1]["external_path"] if newest else None

    def cancel(self, job_id: str, timeout_s: float) -> None:
        """End the job at once; its newest checkpoint stays."""
        self.ask(f"/jobs/{job_id}?mode=cancel", method="PATCH")
        _until(lambda: self.ask(f"/jobs/{job_id}")["state"] in TERMINAL, timeout_s, f"job {job_id} to end")

    def savepoint(self, job_id: str, timeout_s: float, *, stop: bool, target: str | None = None) -> str:
        """Make a savepoint, with ``stop`` as the job's last act; returns its path."""
        body: dict[str, Any] = {"drain": False} if stop else {"cancel-job": False}
        if target:
            body["targetDirectory" if stop else "target-directory"] = target
        path = f"/jobs/{job_id}/{'stop' if stop else 'savepoints'}"
        return self._operation(path, body, f"/jobs/{job_id}/savepoints", "savepoint", timeout_s)["location"]

    def make_checkpoint(self, job_id: str, timeout_s: float) -> None:
        """Make a checkpoint now. Raises ``StoreError`` when it fails."""
        path = f"/jobs/{job_id}/checkpoints"
        self._operation(path, {"checkpointType": "CONFIGURED"}, path, "checkpoint", timeout_s)

    def _operation(self, path: str, body: dict[str, Any], told_at: str, what: str, timeout_s: float) -> dict[str, Any]:
        told_at = f"{told_at}/{self.ask(path, body)['request-id']}"
        answer: dict[str, Any] = {}

        def done() -> bool:
            answer.update(self.ask(told_at))
            return answer["status"]["id"] == "COMPLETED"

        _until(done, timeout_s, f"the {what}")
        failure = answer["operation"].get("failure-cause")
        if failure:
            said = root_cause(failure["stack-trace"])
            raise StoreError(f"the {what} failed: {said}", where=f"{self.url}{told_at}", mend="The job was left as is.")
        return answer["operation"]

    def num_restarts(self, job_id: str) -> int:
        """How often the job was restarted since it was submitted."""
        told = {one["id"]: one.get("value") for one in self.ask(f"/jobs/{job_id}/metrics?get=numRestarts")}
        return int(float(told.get("numRestarts") or 0))

    def restored_from(self, job_id: str) -> str | None:
        """The savepoint or checkpoint that the job's state came from."""
        restored = self.ask(f"/jobs/{job_id}/checkpoints")["latest"].get("restored")
        return restored["external_path"] if restored else None

    def metrics(self, job_id: str, vertex_id: str, names: set[str]) -> dict[str, dict[str, float]]:
        """Of the vertex's operators' metrics those called ``names``, each with min, max, avg and sum over subtasks."""
        path = f"/jobs/{job_id}/vertices/{vertex_id}/subtasks/metrics"
        ids = [one["id"] for one in self.ask(path) if one["id"].rpartition(".")[2] in names]
        if not ids:
            return {}
        values = self.ask(f"{path}?get={quote(','.join(ids))}")
        return {one["id"].rpartition(".")[2]: one for one in values}


def root_cause(stack_trace: str) -> str:
    """The last ``Caused by:`` of a Java stack trace, or else its first line, without package and final full stop."""
    causes = [line for line in stack_trace.splitlines() if line.startswith("Caused by: ")]
    line = causes[-1].removeprefix("Caused by: ") if causes else stack_trace.partition("\n")[0]
    return re.sub(r"^(?:\w+\.)+(?=\w+)", "", line.strip()).rstrip(".")


def _first_error(said: str) -> str:
    try:
        return root_cause("\n".join(json.loads(said)["errors"]).strip())
    except (ValueError, KeyError, TypeError):
        return said[:200] or "no word why"


def _until(done: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise StoreError(f"waited {timeout_s:g} s for {what}", mend="Look at the job in Flink's own page.")
        time.sleep(POLL_S)
