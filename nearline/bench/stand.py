"""The stand of a measurement: Redis, Kafka, Flink and a worker of its own, in a state folder that is thrown away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

from schemas.cli import say
from schemas.errors import StoreError
from schemas.locations import ROOT
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import MANIFEST, Manifest, load_public_key, read_manifest

# What an outer launcher or the user set for their own services: the stand must not touch those.
ADDRESSES = ("REDIS", "KAFKA", "FLINK", "ONLINE", "REGISTRY", "DERIVED")
SAMPLE_S = 0.1
READY_S, STOP_S = 180.0, 60.0
HEAP_MB, HEAP_KB_PER_USER = 640, 4  # of the TaskManager: a window of 50 events, and as much again for the collector


class Stand:
    """Services in ``folder``, run through the verbs that everybody uses. Every method may raise ``StoreError``."""

    def __init__(self, folder: Path, release: Path, key: Path, users: int) -> None:
        """Starts them, Flink with memory for the windows of so many ``users``.

        ``release`` is what the worker encodes with, signed by the key whose public part is ``key``.
        """
        self.folder = folder
        plain = {name: value for name, value in os.environ.items() if name.removeprefix("BEFOREHAND_") not in ADDRESSES}
        self.environ = {**plain, "BEFOREHAND_STATE": str(folder), "BEFOREHAND_VERIFY_KEY": str(key)}
        self.environ.setdefault("BEFOREHAND_FLINK_HEAP_MB", str(HEAP_MB + users * HEAP_KB_PER_USER // 1024))
        self.manifest = self._promote(release, key)
        found = self.verb("up")
        self.kafka, self.redis = str(found["BEFOREHAND_KAFKA"]), str(found["BEFOREHAND_REDIS"])
        self.flink = str(found["BEFOREHAND_FLINK"])
        services = {one["name"]: one["pids"] for one in self.verb("status")}
        self.flink_pids: list[int] = services["flink"]

    def _promote(self, release: Path, key: Path) -> Manifest:
        manifest = read_manifest(release, load_public_key(key))
        registry = Registry(f"sqlite:///{self.folder / 'registry.db'}")
        row = ReleaseRow(manifest.id, str(release), "", {}, Status.FUTURE, manifest.made_at)
        registry.publish(row, why=MANIFEST)
        registry.promote(manifest.id, why="bench")
        return manifest

    def verb(self, *words: str) -> Any:
        """Run ``./beforehand WORDS --json``; its result."""
        command = [str(ROOT / "beforehand"), *words, "--json"]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StoreError(f"it failed: {(done.stderr or done.stdout).strip()[-600:]}", where=" ".join(words))
        return json.loads(done.stdout[min(at for at in map(done.stdout.find, "[{") if at >= 0) :])

    def ask_flink(self, path: str, method: str = "GET") -> Any:
        """Flink's answer over REST."""
        request = urllib.request.Request(f"{self.flink}{path}", method=method)  # noqa: S310 - our own cluster
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
                return json.loads(answer.read() or b"{}")
        except OSError as error:
            raise StoreError(f"Flink does not answer: {error}", where=path) from None

    @contextmanager
    def worker(self, *words: str) -> Generator[subprocess.Popen[str]]:
        """A worker that has loaded its release; told to stop when the block ends."""
        log = self.folder / "worker.log"
        command = [str(ROOT / "beforehand"), "worker", "--json", *words]
        with log.open("w") as said:
            process = subprocess.Popen(
                command, env=self.environ, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True
            )
        try:
            ends = time.monotonic() + READY_S
            while "encoding with" not in log.read_text("utf-8"):
                if process.poll() is not None or time.monotonic() > ends:
                    raise StoreError(f"the worker did not start: {log.read_text('utf-8')[-500:]}", where="worker")
                time.sleep(0.05)
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Stop everything."""
        with suppress(StoreError):
            self.verb("down")


def summary(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a worker says when it has ended by itself or was told to."""
    try:
        said, _ = process.communicate(timeout=None if process.poll() is None else STOP_S)
        return json.loads(said.splitlines()[-1])
    except (ValueError, IndexError):
        raise StoreError(f"the worker ended with exit code {process.returncode}", where="worker") from None


def cpu_s(sessions: Sequence[int]) -> float:
    """CPU that these processes and all of their sessions have used, user and system, ended children included."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has just ended; then its parent counts it
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                if int(fields[3]) in sessions:
                    ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Meter:
    """The CPU of some sessions over time, sampled in a thread."""

    def __init__(self, sessions: Sequence[int]) -> None:
        self._sessions = sessions
        self._times: list[float] = []
        self._used: list[float] = []
        self._stop = Flag()
        self._sample()
        self._thread = Thread(target=self._run, name="meter", daemon=True)
        self._thread.start()

    def at(self, when: float) -> float:
        """CPU seconds used up to ``when`` (``time.time()``), to a sample's length."""
        place = min(bisect_left(self._times, when), len(self._times) - 1)
        return self._used[place]

    def close(self) -> None:
        """Sample no more."""
        self._stop.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        self._used.append(cpu_s(self._sessions))
        self._times.append(time.time())


def tell(found: dict[str, Any]) -> None:
    """The figures for people."""
    for name, value in found.items():
        if not isinstance(value, dict):
            say(f"  {name:<34} {value:,}" if isinstance(value, (int, float)) else f"  {name:<34} {value}")
