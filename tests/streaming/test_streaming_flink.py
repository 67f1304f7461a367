"""The REST client and the reports, against a small stand-in server on the loopback address."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import pytest

from schemas.errors import StoreError
from streaming import report as reports
from streaming.flink import Flink, Job, root_cause

TRACE = """org.apache.flink.runtime.JobException: Recovery is suppressed
\tat a.b.C(C.java:1)
Caused by: java.lang.RuntimeException: outer
Caused by: java.lang.IllegalStateException: 43 % are dead letters.
\tat beforehand.ReadEvent"""


class InTurn(list[Any]):
    """Answers given one by one, the last for good."""


class Cluster:
    """Answers by path."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, str, Any]] = []
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                cluster.asked.append((self.command, self.path, body))
                answer = cluster.answers.get(self.path, (404, {"errors": ["Not found: " + self.path]}))
                if isinstance(answer, InTurn):
                    answer = answer.pop(0) if len(answer) > 1 else answer[0]
                status, content = answer if isinstance(answer, tuple) else (200, answer)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            do_POST = do_PATCH = do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.flink = Flink(f"127.0.0.1:{self.server.server_port}")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr("streaming.flink.CACHE_S", 0.3)
    made = Cluster()
    yield made
    made.server.shutdown()
    made.server.server_close()


def job(state: str, *vertices: str) -> dict[str, Any]:
    return {"state": state, "duration": 65_000, "vertices": [{"id": "v", "status": one} for one in vertices]}


def test_root_cause_is_the_innermost_without_package() -> None:
    assert root_cause(TRACE) == "IllegalStateException: 43 % are dead letters"
    assert root_cause("java.lang.Error: plain\n\tat x") == "Error: plain"


def test_nobody_there_names_the_address_and_the_mend() -> None:
    with pytest.raises(StoreError) as caught:
        Flink("http://127.0.0.1:9").jobs("x")
    assert caught.value.where == "http://127.0.0.1:9"
    assert "beforehand up" in caught.value.mend


def test_a_refusal_is_told_in_flinks_words(cluster: Cluster) -> None:
    cluster.answers["/overview"] = (500, {"errors": ["Internal server error.", f"<Exception:\n{TRACE}"]})
    with pytest.raises(StoreError, match="43 % are dead letters"):
        cluster.flink.ask("/overview")


def test_jobs_of_the_name_newest_first(cluster: Cluster) -> None:
    rows = [("a", "w", "FAILED", 1), ("b", "other", "RUNNING", 9), ("c", "w", "RUNNING", 5)]
    cluster.answers["/jobs/overview"] = {
        "jobs": [dict(zip(("jid", "name", "state", "start-time"), row, strict=True)) for row in rows]
    }
    assert [(found.job_id, found.over) for found in cluster.flink.jobs("w")] == [("c", False), ("a", True)]


def test_running_means_that_every_task_runs(cluster: Cluster) -> None:
    cluster.answers["/jobs/j"] = InTurn(
        [job("CREATED"), job("RUNNING", "RUNNING", "DEPLOYING"), job("RUNNING", "RUNNING")]
    )
    assert cluster.flink.wait_running("j", 20) == "RUNNING"
    assert len(cluster.asked) == 3


def test_a_failed_start_tells_the_cause(cluster: Cluster) -> None:
    cluster.answers |= {
        "/jobs/j": job("FAILED", "FAILED"),
        "/jobs/j/exceptions": {"exceptionHistory": {"entries": [{"stacktrace": TRACE}]}},
        "/overview": {"slots-available": 2},
    }
    with pytest.raises(StoreError, match=r"FAILED.*43 % are dead letters.*deploy again"):
        cluster.flink.wait_running("j", 20)


def test_no_free_slot_is_named(cluster: Cluster) -> None:
    cluster.answers |= {
        "/jobs/j": job("RUNNING", "SCHEDULED"),
        "/jobs/j/exceptions": {},
        "/overview": {"slots-available": 0},
    }
    with pytest.raises(StoreError, match="No task slot is free"):
        cluster.flink.wait_running("j", 0)


def test_stop_with_savepoint_waits_for_its_path(cluster: Cluster) -> None:
    cluster.answers |= {
        "/jobs/j/stop": {"request-id": "r"},
        "/jobs/j/savepoints/r": InTurn(
            [
                {"status": {"id": "IN_PROGRESS"}},
                {"status": {"id": "COMPLETED"}, "operation": {"location": "file:/s"}},
            ]
        ),
    }
    assert cluster.flink.savepoint("j", 20, stop=True, target="file:/to") == "file:/s"
    assert cluster.asked[0] == ("POST", "/jobs/j/stop", {"drain": False, "targetDirectory": "file:/to"})


def test_a_failed_savepoint_is_an_error(cluster: Cluster) -> None:
    operation = {"failure-cause": {"class": "x", "stack-trace": TRACE}}
    cluster.answers |= {
        "/jobs/j/savepoints": {"request-id": "r"},
        "/jobs/j/savepoints/r": {"status": {"id": "COMPLETED"}, "operation": operation},
    }
    with pytest.raises(StoreError, match="43 % are dead letters"):
        cluster.flink.savepoint("j", 20, stop=False)


def test_a_checkpoint_now_and_what_it_was_restored_from(cluster: Cluster) -> None:
    done = {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 3}}
    cluster.answers |= {
        "/jobs/j/checkpoints": InTurn([{"request-id": "r"}, {"latest": {"restored": {"external_path": "s"}}}]),
        "/jobs/j/checkpoints/r": done,
        "/jobs/j/metrics?get=numRestarts": InTurn([[{"id": "numRestarts", "value": "2"}], []]),
    }
    cluster.flink.make_checkpoint("j", 20)
    assert cluster.asked[0] == ("POST", "/jobs/j/checkpoints", {"checkpointType": "CONFIGURED"})
    assert cluster.flink.restored_from("j") == "s"
    assert (cluster.flink.num_restarts("j"), cluster.flink.num_restarts("j")) == (2, 0)
    cluster.answers["/jobs/j/checkpoints"] = {"request-id": "r"}
    cluster.answers["/jobs/j/checkpoints/r"] = {**done, "operation": {"failure-cause": {"stack-trace": TRACE}}}
    with pytest.raises(StoreError, match=r"checkpoint failed.*43 % are dead letters"):
        cluster.flink.make_checkpoint("j", 20)


def test_the_newest_of_checkpoint_and_savepoint(cluster: Cluster) -> None:
    completed, saved = {"id": 7, "external_path": "c7"}, {"id": 9, "external_path": "s9"}
    latest = [
        {"completed": completed, "savepoint": saved},
        {"completed": completed, "savepoint": None},
        {"completed": None, "savepoint": None, "restored": {"id": 5, "external_path": "r5"}},
        {"completed": None, "savepoint": None, "restored": None},
    ]
    expected = ["s9", "c7", "r5", None]
    old = {"latest": {"completed": {"id": 1, "external_path": "deleted by now"}, "savepoint": None}}
    for one, path in zip(latest, expected, strict=True):
        cluster.answers["/jobs/j/checkpoints"] = InTurn([old, {"latest": one}])
        assert cluster.flink.checkpoint("j") == path


def test_the_cause_of_a_failed_job_is_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.flink.CACHE_S", 60.0)  # the most that it waits: until it is told
    told = {"exceptionHistory": {"entries": [{"stacktrace": TRACE}]}}
    cluster.answers["/jobs/j/exceptions"] = InTurn([{}, told])
    assert cluster.flink.cause("j", "RUNNING") is None
    cluster.answers["/jobs/j/exceptions"] = InTurn([{}, told])
    assert cluster.flink.cause("j", "FAILED") == root_cause(TRACE)


def test_report_sums_the_subtasks_and_takes_the_worst_share(cluster: Cluster) -> None:
    values = {"bh_records": ("sum", 1007), "bh_bad_records": ("sum", 7), "bh_bad_share": ("max", 0.25)}
    ids = [{"id": f"Calc[3].{name}"} for name in values] + [{"id": "Source.pendingRecords"}, {"id": "Calc[3].other"}]
    numbers = [{"id": f"Calc[3].{name}", how: value} for name, (how, value) in values.items()]
    metrics = "/jobs/j/vertices/v/subtasks/metrics"
    asked = quote(",".join(one["id"] for one in ids[:-1]))
    cluster.answers |= {
        "/jobs/j": job("RUNNING", "RUNNING"),
        metrics: ids,
        f"{metrics}?get={asked}": [*numbers, {"id": "Source.pendingRecords", "sum": -1.0}],
        "/jobs/j/metrics?get=numRestarts": [{"id": "numRestarts", "value": "2"}],
        "/jobs/j/checkpoints": {"latest": {"completed": None}, "counts": {"completed": 0, "failed": 1}},
        "/jobs/j/exceptions": {},
    }
    found = reports.report(cluster.flink, Job("j", "w", "RUNNING", 0))
    assert (found.records, found.dead_letters, found.bad_share, found.num_restarts) == (1007, 7, 0.25, 2)
    assert found.lag_records is None, "Flink's -1 means that it does not know"
    text = "\n".join(reports.lines(found))
    assert "1,007 records read, ? waiting" in text
    assert "7 dead letters, 25.0%" in text
    assert "no checkpoint yet" in text
