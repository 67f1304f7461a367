"""Children are found again, stopped with all that they started, and never mistaken for somebody else's."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from infra import proc, processes
from infra.errors import LauncherError

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
# Ignores SIGTERM, and starts a child in a session of its own, as Flink's Python workers are.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def wait_for(what, timeout_s=10.0):
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.02)
    return found


def test_start_is_idempotent_and_stop_too(tmp_path):
    first = processes.start("sleeper", SLEEP, tmp_path / "s")
    assert processes.start("sleeper", SLEEP, tmp_path / "s").pid == first.pid
    assert processes.find(tmp_path / "s") == first
    assert processes.stop(tmp_path / "s") is True
    assert not first.alive()
    assert processes.find(tmp_path / "s") is None
    assert processes.stop(tmp_path / "s") is False


def test_the_children_of_children_go_too(tmp_path):
    process = processes.start("stubborn", [sys.executable, "-c", STUBBORN], tmp_path / "s")
    grandchild = int(wait_for(process.log.read_text))
    wait_for(lambda: len(process.family()) == 2)
    processes.stop(tmp_path / "s", grace_s=0.3)
    assert proc.started(process.pid) is None
    assert proc.started(grandchild) is None


def test_what_a_killed_process_left_behind_goes_too(tmp_path):
    process = processes.start("stubborn", [sys.executable, "-c", STUBBORN], tmp_path / "s")
    grandchild = int(wait_for(process.log.read_text))
    wait_for(lambda: len(process.family()) == 2)
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not process.alive())
    assert proc.started(grandchild) is not None
    assert processes.stop(tmp_path / "s", grace_s=0.3) is True
    assert proc.started(grandchild) is None


def test_the_pid_of_another_process_is_never_signalled(tmp_path):
    """A pid file that outlived a reboot names whoever has the number now."""
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    time.sleep(0.05)  # the kernel tells start times to 10 ms
    try:
        ours = processes.start("ours", SLEEP, tmp_path / "s")
        processes.stop(tmp_path / "s")
        record = {
            "name": "ours", "pid": stranger.pid, "born": ours.born, "token": ours.token,
            "argv": SLEEP, "started_at": 0.0,
        }  # fmt: skip
        (tmp_path / "s" / "pid.json").write_text(json.dumps(record))
        stale = processes.find(tmp_path / "s")
        assert stale is not None and not stale.alive()
        assert processes.stop(tmp_path / "s") is False
        assert stranger.poll() is None, "a stranger was killed"
        assert not (tmp_path / "s" / "pid.json").exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_half_written_pid_file_is_no_process(tmp_path):
    (tmp_path / "pid.json").write_text('{"pid": 1')
    assert processes.find(tmp_path) is None


def test_dying_at_the_start_is_told_with_the_last_words(tmp_path):
    command = [sys.executable, "-c", "print('port 1 is taken'); raise SystemExit(3)"]
    process = processes.start("unlucky", command, tmp_path / "s")
    with pytest.raises(LauncherError, match="port 1 is taken") as caught:
        processes.wait_until([process], lambda: "not yet", timeout_s=20)
    assert str(process.log) in caught.value.mend


def test_staying_silent_is_told_after_the_time_limit(tmp_path):
    process = processes.start("silent", SLEEP, tmp_path / "s")
    try:
        with pytest.raises(LauncherError, match=r"did not answer within 0.2 s \(refused\)"):
            processes.wait_until([process], lambda: "refused", timeout_s=0.2)
    finally:
        processes.stop(tmp_path / "s")


def test_a_child_gets_the_environment_and_the_folder(tmp_path):
    code = "import os; print(os.environ['COLOUR'], os.getcwd(), os.getsid(0) == os.getpid())"
    env = {**os.environ, "COLOUR": "green"}
    process = processes.start("child", [sys.executable, "-c", code], tmp_path / "s", env=env, cwd=tmp_path)
    assert wait_for(process.log.read_text).split() == ["green", str(tmp_path), "True"]
    processes.stop(tmp_path / "s")
