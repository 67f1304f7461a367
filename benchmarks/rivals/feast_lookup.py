"""The look-up alone, by Feast over the same Redis: `feast_lookup.py < job.json`.

The users' states, as bytes, are a feature of an entity. They are read one user at a time, as a request does: by Feast's
Python feature server over HTTP on a kept connection, and by its SDK in this process.

In: {"redis": "redis://HOST:PORT/0", "states": FOLDER (a file per user, named by their id), "requests"}.
Out: {"server_cpu_us", "server_client_cpu_us", "sdk_cpu_us", "requests", "feast"}; the server's is its process alone.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("FEAST_USAGE", "False")

import feast
import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Bytes

PROJECT, FEATURE = "beforehand", "states:state"
START_S = 300.0
WARM = 50


def main() -> None:
    """Job on stdin, figures on stdout."""
    job: dict[str, Any] = json.load(sys.stdin)
    states = {path.name: path.read_bytes() for path in sorted(Path(job["states"]).iterdir())}
    users = [list(states)[number % len(states)] for number in range(job["requests"] + WARM)]
    with tempfile.TemporaryDirectory(prefix="feast-") as folder:
        store = fill(Path(folder), urlsplit(job["redis"]), states)
        sdk_us = measured(lambda user: check(ask(store, user), states[user]), users, time.process_time)
        with served(Path(folder)) as (port, pid):
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            client = time.process_time()
            server_us = measured(lambda user: post(link, user), users, lambda: cpu_s(worker(pid)))
            client_us = (time.process_time() - client) / len(users) * 1e6
    figures = {"server_cpu_us": server_us, "server_client_cpu_us": client_us, "sdk_cpu_us": sdk_us}
    json.dump({**figures, "requests": job["requests"], "feast": feast.__version__}, sys.stdout)


def measured(look_up: Callable[[str], object], users: list[str], clock: Callable[[], float]) -> float:
    """Microseconds by ``clock`` for each user but the first ``WARM``."""
    for user in users[:WARM]:
        look_up(user)
    begun = clock()
    for user in users[WARM:]:
        look_up(user)
    return (clock() - begun) / (len(users) - WARM) * 1e6


def fill(folder: Path, redis: Any, states: dict[str, bytes]) -> FeatureStore:
    """A feature store of one view, with everybody's state in Redis."""
    (folder / "feature_store.yaml").write_text(
        f"project: {PROJECT}\nregistry: {folder}/registry.db\nprovider: local\nentity_key_serialization_version: 3\n"
        f"offline_store:\n  type: file\n"
        f"online_store:\n  type: redis\n  connection_string: {redis.hostname}:{redis.port or 6379}\n"
    )
    store = FeatureStore(repo_path=str(folder))
    now = datetime.now(UTC)
    frame = pd.DataFrame({"user": list(states), "state": list(states.values()), "at": now})
    frame.to_parquet(folder / "states.parquet")
    user = Entity(name="user", join_keys=["user"], value_type=ValueType.STRING)
    source = FileSource(path=str(folder / "states.parquet"), timestamp_field="at")
    view = FeatureView(
        name="states",
        entities=[user],
        ttl=timedelta(days=1),
        schema=[Field(name="state", dtype=Bytes)],
        source=source,
        online=True,
    )
    store.apply([user, view])
    store.write_to_online_store("states", frame)
    return store


def ask(store: FeatureStore, user: str) -> object:
    """By the SDK."""
    return store.get_online_features([FEATURE], [{"user": user}]).to_dict()["state"][0]


def post(link: http.client.HTTPConnection, user: str) -> None:
    """By the server. Exits unless it has a value."""
    body = json.dumps({"features": [FEATURE], "entities": {"user": [user]}})
    link.request("POST", "/get-online-features", body, {"content-type": "application/json"})
    answer = json.loads(link.getresponse().read())
    values = answer["results"][answer["metadata"]["feature_names"].index("state")]["values"]
    if not values[0]:
        sys.exit(f"Feast's server has no state of {user}: {answer}")


def check(got: object, expected: bytes) -> None:
    """Exits unless it is the user's own state."""
    if got != expected:
        sys.exit("Feast gave another state than was stored")


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """Feast's Python feature server, one worker: its port and its first process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("feast")), "--chdir", str(folder), "serve"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--no-access-log", "--workers", "1"]
    # By default a worker ends after 1,000 requests: connections are reset, and its processor time can't be read.
    command += ["--max-requests", "0", "--max-requests-jitter", "0"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        await_port(port, process, folder / "log")
        yield port, process.pid
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()


def await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers."""
    ends = time.monotonic() + START_S
    while True:
        try:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            link.request("GET", "/health")
            if link.getresponse().status == 200:
                return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > ends:
            sys.exit(f"Feast's server did not start: {log.read_text()[-500:]}")
        time.sleep(0.2)


def worker(pid: int) -> int:
    """gunicorn's worker, or the process itself when it has no child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[-1]) if children else pid


def cpu_s(pid: int) -> float:
    """CPU that a process has used, all threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
