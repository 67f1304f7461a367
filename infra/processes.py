"""Long-running children: started in their own session, found again by another launcher, stopped without a trace.

    process = start("worker", ["./beforehand", "worker"], layout.run / "worker")
    ...
    stop(layout.run / "worker")

A folder holds one process: `pid.json` (who it is) and `log` (what it said).
A process is signalled only when its start time or its token proves that it is the one that was started here.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from infra import proc
from infra.errors import LauncherError

POLL_S = 0.05


@dataclass(frozen=True)
class Process:
    """A started process; `born` and `token` tell it from any later owner of its pid."""

    name: str
    folder: Path
    pid: int
    born: str
    token: str
    argv: tuple[str, ...]
    started_at: float

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def alive(self) -> bool:
        return proc.started(self.pid) == self.born

    def family(self) -> list[int]:
        """The process, its children and what they left behind."""
        return proc.family(self.token, self.pid if self.alive() else None)

    def rss_bytes(self) -> int:
        return sum(proc.rss_bytes(pid) for pid in self.family())

    def last_words(self, lines: int = 15) -> str:
        """The end of the log, for an error message."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(f"    {line}" for line in text.splitlines()[-lines:])


def start(
    name: str,
    argv: Sequence[str | Path],
    folder: Path,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> Process:
    """Start `argv` with its output in `folder/log`; one that already runs from this folder is returned as it is."""
    running = find(folder)
    if running is not None and running.alive():
        return running
    stop(folder)
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    words = tuple(str(word) for word in argv)
    with (folder / "log").open("ab") as log:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**(os.environ if env is None else env), proc.TOKEN: token},
            start_new_session=True,
        )
    process = Process(name, folder, child.pid, proc.started(child.pid) or "", token, words, time.time())
    _write(process)
    return process


def find(folder: Path) -> Process | None:
    """The process that was last started from `folder`, alive or not; None when none was, or when it was stopped."""
    try:
        record = json.loads((folder / "pid.json").read_text())
        record.update(folder=folder, argv=tuple(record["argv"]))
        return Process(**record)
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        # Cut short by a full disk, or written by another program: it identifies no process of ours.
        return None


def pid_lives(pid: int) -> bool:
    """Whether any living process has this pid; says nothing about whose it is."""
    return proc.started(pid) is not None


def wait_until(started: Sequence[Process], problem: Callable[[], str | None], timeout_s: float) -> None:
    """Return when `problem()` is None; a process that dies or stays unwell is an error with its last words."""
    deadline = time.monotonic() + timeout_s
    while True:
        trouble = problem()
        # Asked after the probe: what answered it may be a stranger on the port that ours could not get.
        for process in started:
            if not process.alive():
                raise LauncherError(
                    f"{process.name} stopped while starting; its log ends with:\n{process.last_words()}",
                    f"read the whole log: {process.log}",
                )
        if trouble is None:
            return
        if time.monotonic() > deadline:
            words = "\n".join(process.last_words() for process in started)
            raise LauncherError(
                f"{started[0].name} did not answer within {timeout_s:g} s ({trouble}); the log ends with:\n{words}",
                f"read the whole log: {started[0].log}; a busy machine may only need another try",
            )
        time.sleep(POLL_S)


def stop(folder: Path, grace_s: float = 10.0) -> bool:
    """SIGTERM, and SIGKILL after the grace, for the whole family; True when anything had to be stopped."""
    process = find(folder)
    if process is None:
        return False
    seen: dict[int, str] = {}

    def left() -> list[int]:
        """The family, and who was of it and still ends: a process loses its environment, our mark, before its pid."""
        seen.update((pid, born) for pid in process.family() if (born := proc.started(pid)))
        return [pid for pid, born in seen.items() if proc.started(pid) == born]

    proc.send(left(), signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while left() and time.monotonic() < deadline:
        time.sleep(POLL_S)
    while family := left():
        proc.send(family, signal.SIGKILL)
        time.sleep(POLL_S)
    (folder / "pid.json").unlink(missing_ok=True)
    return bool(seen)


def _write(process: Process) -> None:
    record = asdict(process)
    del record["folder"]
    partial = process.folder / "pid.json.partial"
    partial.write_text(json.dumps(record, indent=1) + "\n")
    partial.replace(process.folder / "pid.json")
