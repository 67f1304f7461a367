"""The local stack with a real Redis; Kafka and Flink are in the slow tests."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlparse

import pytest
import redis
from killing import kill

from infra import flink, health, launcher, processes
from infra.errors import LauncherError
from infra.paths import ROOT
from infra.stack import Stack, online_address


@pytest.fixture
def stack(tmp_path):
    stack = Stack(tmp_path / "state")
    yield stack
    stack.down()


def connect(addresses: dict[str, str]) -> redis.Redis:
    return redis.Redis.from_url(addresses["BEFOREHAND_REDIS"])


def state_of(stack: Stack, name: str) -> str:
    return next(one.state for one in stack.status() if one.name == name)


def test_up_status_down(stack):
    assert {one.state for one in stack.status()} == {"stopped"}
    addresses = stack.up(["redis"])
    assert connect(addresses).ping()
    (one,) = (one for one in stack.status() if one.name == "redis")
    assert one.running and one.rss_bytes > 1e6 and one.uptime_s is not None
    assert stack.environment() == addresses
    assert stack.down() == ["redis"]
    assert stack.environment() == {}
    assert state_of(stack, "redis") == "stopped"


def test_up_and_down_twice(stack):
    first = stack.up(["redis"])
    pids = next(one.pids for one in stack.status() if one.name == "redis")
    assert stack.up(["redis"]) == first
    assert next(one.pids for one in stack.status() if one.name == "redis") == pids
    assert stack.down() == ["redis"]
    assert stack.down() == []


def test_the_data_outlives_a_down(stack):
    connect(stack.up(["redis"])).set("kept", "yes")
    stack.down()
    assert connect(stack.up(["redis"])).get("kept") == b"yes"


def test_redis_listens_on_the_loopback_only(stack):
    port = urlparse(stack.up(["redis"])["BEFOREHAND_REDIS"]).port
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    addresses = {row[1].split(":")[0] for row in listening if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}
    assert addresses == {"0100007F"}


def test_a_killed_service_is_reported_and_started_again_on_its_port(stack):
    before = stack.up(["redis"])
    pid = next(one.pids for one in stack.status() if one.name == "redis")[0]
    kill(pid)
    (one,) = (one for one in stack.status() if one.name == "redis")
    assert one.state == "crashed" and str(pid) in (one.detail or "")
    assert stack.environment() == {}
    assert stack.up(["redis"]) == before
    assert state_of(stack, "redis") == "running"


def test_a_taken_port_is_left_to_its_owner(stack):
    port = urlparse(stack.up(["redis"])["BEFOREHAND_REDIS"]).port
    stack.down()
    with socket.socket() as owner:
        owner.bind(("127.0.0.1", port))
        owner.listen()
        assert urlparse(stack.up(["redis"])["BEFOREHAND_REDIS"]).port != port


def test_a_service_that_cannot_start_is_told_with_its_log(stack, monkeypatch, tmp_path):
    broken = tmp_path / "broken-redis"
    broken.write_text("#!/bin/sh\necho 'FATAL: bad weather'\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("BEFOREHAND_REDIS_SERVER", str(broken))
    with pytest.raises(LauncherError, match="bad weather") as caught:
        stack.up(["redis"])
    assert "redis/log" in caught.value.mend
    assert state_of(stack, "redis") == "stopped"


def test_a_wrong_redis_server_names_the_setting(stack, monkeypatch):
    monkeypatch.setenv("BEFOREHAND_REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(LauncherError, match="BEFOREHAND_REDIS_SERVER"):
        stack.up(["redis"])


def test_an_unknown_service_is_refused_by_name(stack):
    with pytest.raises(LauncherError, match="'rediss'"):
        stack.up(["rediss"])


def test_two_stacks_do_not_meet(stack, tmp_path):
    other = Stack(tmp_path / "other")
    try:
        connect(stack.up(["redis"])).set("here", 1)
        assert connect(other.up(["redis"])).get("here") is None
    finally:
        other.down()
    assert state_of(stack, "redis") == "running"


def test_the_verbs_speak_json(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path / "state"))
    assert launcher.main(["up", "redis", "--json"]) == 0
    addresses = json.loads(capsys.readouterr().out)
    assert addresses["BEFOREHAND_REDIS"].startswith("redis://127.0.0.1:")
    assert launcher.main(["status", "--json"]) == 0
    states = {one["name"]: one["state"] for one in json.loads(capsys.readouterr().out)}
    assert states == {"redis": "running", "kafka": "stopped", "flink": "stopped"}
    assert launcher.main(["down", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"stopped": ["redis"]}


def test_the_look_up_services_address_is_passed_on_while_it_lives(stack):
    folder = stack.layout.run / "online"
    folder.mkdir(parents=True)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (folder / "address.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": child.pid}))
    assert stack.environment() == {"BEFOREHAND_ONLINE": "http://127.0.0.1:1"}
    child.communicate(b"\n")
    assert online_address(stack.layout) is None


def test_health_of_nothing_is_a_reason_and_no_exception():
    port = health.free_ports({"any": None})["any"]
    for problem in (health.redis_problem, health.kafka_problem, health.flink_problem):
        assert "refused" in (problem(port) or "")


def test_a_fresh_port_is_none_that_an_outgoing_connection_may_get():
    """A killed service must find its port free again, whatever its clients did meanwhile."""
    names = [f"port {number}" for number in range(40)]
    ports = health.free_ports(dict.fromkeys(names))
    assert len(set(ports.values())) == len(names)
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first > 22_000:
        assert all(10_000 <= port < first for port in ports.values())
    assert health.free_ports(ports) == ports, "free ones are kept"


def test_a_port_that_is_given_back_in_a_moment_is_waited_for():
    port = health.free_ports({"kept": None})["kept"]
    with socket.socket() as dying:
        dying.bind(("127.0.0.1", port))
        dying.listen()
        threading.Timer(0.3, dying.close).start()
        assert health.free_ports({"kept": port}) == {"kept": port}


def test_a_port_that_somebody_keeps_is_given_up(monkeypatch):
    monkeypatch.setattr(health, "PATIENCE_S", 0.1)
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        assert health.free_ports({"wanted": taken})["wanted"] != taken


def test_a_stranger_on_a_services_port_is_not_taken_for_it():
    """Something listens and says nothing that the protocol allows."""
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        assert health.redis_problem(port, timeout_s=0.2)
        assert health.kafka_problem(port, timeout_s=0.2)
        assert health.flink_problem(port, timeout_s=0.2)


def test_a_verb_finds_the_addresses(tmp_path):
    """Through the real launcher: `env`-like verb environment as a room sees it."""
    state = tmp_path / "state"
    environ = {**os.environ, "BEFOREHAND_STATE": str(state)}
    subprocess.run([ROOT / "beforehand", "up", "redis"], env=environ, check=True, capture_output=True)
    try:
        code = (
            "import json; from infra.paths import Layout; from infra.settings import verb_environment as v; "
            "e = v(Layout.current(), 'nearline'); print(json.dumps({k: w for k, w in e.items() if 'BEFOREHAND' in k}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], env=environ, cwd=ROOT, check=True, capture_output=True, text=True
        )
        seen = json.loads(done.stdout)
        assert seen["BEFOREHAND_STATE"] == str(state)
        assert seen["BEFOREHAND_REDIS"] == Stack(state).environment()["BEFOREHAND_REDIS"]
        assert "BEFOREHAND_KAFKA" not in seen
    finally:
        subprocess.run([ROOT / "beforehand", "down"], env=environ, check=True, capture_output=True)
    assert processes.find(state / "run" / "redis") is None


def test_down_stops_the_verbs_that_were_started_beside_the_stack(stack):
    stack.up(["redis"])
    worker = processes.start(
        "worker", [sys.executable, "-c", "import time; time.sleep(60)"], stack.layout.run / "worker"
    )
    assert state_of(stack, "worker") == "running"
    assert stack.down(["redis"]) == ["redis"]
    assert worker.alive(), "only what is named is stopped"
    assert stack.down() == ["worker"]
    assert not worker.alive()


def test_an_interrupt_while_starting_leaves_nothing(tmp_path):
    """Ctrl-C reaches the launcher, not the services: they have sessions of their own."""
    silent = tmp_path / "silent-redis"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    state = tmp_path / "state"
    environ = {**os.environ, "BEFOREHAND_STATE": str(state), "BEFOREHAND_REDIS_SERVER": str(silent)}
    # A runner in the background ignores Ctrl-C, and so would what it starts.
    command = ["env", "--default-signal=INT", ROOT / "beforehand", "up", "redis"]
    launched = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
    pid_file = state / "run" / "redis" / "pid.json"
    deadline = time.monotonic() + 10
    while not pid_file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process = processes.find(pid_file.parent)
    assert process is not None and process.alive()
    launched.send_signal(signal.SIGINT)
    _, said = launched.communicate()
    assert launched.returncode == 130
    assert "interrupted" in said and "Traceback" not in said
    assert not process.alive()


def test_flinks_heap_is_what_the_variable_says(tmp_path, monkeypatch):
    def heap() -> tuple[str, str]:
        config = flink.flink_config(tmp_path, {"rest": 1, "jobmanager": 2}, Path("python"))
        (size,) = (line.split()[1] for line in config.splitlines() if "task.heap" in line)
        (limit,) = (word for word in flink.flink_java_options(tmp_path)[1].java_options if word.startswith("-Xmx"))
        return size, limit

    assert heap() == ('"640m"', "-Xmx768m")
    monkeypatch.setenv(flink.HEAP_VARIABLE, "4096")
    assert heap() == ('"4096m"', "-Xmx4224m")
    for wrong in ("4g", "", "12", "-1", "٤٠٠٠", "9" * 5_000):
        monkeypatch.setenv(flink.HEAP_VARIABLE, wrong)
        with pytest.raises(LauncherError, match=flink.HEAP_VARIABLE):
            heap()
