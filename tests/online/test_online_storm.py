"""The service as a process, asked for far more than it can do while Redis stalls and dies."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import pytest
import redis
from online_values import FIXTURES, KEY

from online.bench.load import Job
from online.bench.stage import Users, job_of
from online.bench.stand import generate, own_redis, service
from online.bench.synthetic import promote
from schemas.release import read_manifest

pytestmark = pytest.mark.slow
USERS = 300


def test_a_storm_gives_no_error_and_no_wrong_user(tmp_path, monkeypatch):
    """Every request is answered, by some rung, for the user who asked; how late is not asserted."""
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    monkeypatch.setenv("BEFOREHAND_VERIFY_KEY", str(FIXTURES / "release.pub"))
    manifest = read_manifest(FIXTURES / "release", KEY)
    promote(manifest, FIXTURES / "release")
    with own_redis(tmp_path) as url:
        Users(manifest, USERS).store(url)
        pid = redis.Redis.from_url(url).info()["process_id"]
        with service(tmp_path, url) as address:
            few = {"seconds": 1, "rate": 20, "connections": 2, "users": USERS, "slack_ms": 10}
            before = generate(job_of([address], None, budget_ms=2000, **few))
            job = job_of([address], None, seconds=6, rate=1500, connections=64, users=USERS, budget_ms=50, slack_ms=10)
            faults = threading.Thread(target=stall_and_kill, args=(pid,))
            faults.start()
            report = generate(job)
            faults.join()
            after = generate(job_of([address], None, budget_ms=50, **few))
    assert isinstance(job, Job)
    assert before.errors == report.errors == after.errors == 0
    assert before.wrong_user == report.wrong_user == after.wrong_user == 0
    assert report.requests > 5000
    assert len(report.latency_ms) == report.requests, "each was answered"
    assert "generate" in before.rungs, "in the calm: how many are in the storm is up to the machine"
    assert set(report.rungs) - {"generate"}, "not all were generated for"
    assert after.rungs, "it still answers without Redis"


def stall_and_kill(pid: int) -> None:
    time.sleep(1.5)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(pid, signal.SIGCONT)
    time.sleep(1.0)
    subprocess.run(["kill", "-9", str(pid)], check=True)
