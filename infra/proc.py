"""Who a process is, as the kernel tells it.

A pid alone is not an identity: it is used again after a reboot or a while.
A pid with its start time is, and so is a token in the environment, which every descendant inherits.
"""

from __future__ import annotations

import os
import signal
import subprocess
from functools import cache
from pathlib import Path

PROC = Path("/proc")
TOKEN = "BEFOREHAND_PROCESS"  # noqa: S105 - the name of a variable, no secret


def started(pid: int) -> str | None:
    """The process's start, in the kernel's words; None when it is gone or a zombie."""
    if not PROC.is_dir():
        return _started_by_ps(pid)
    fields = _stat(pid)
    # The kernel counts from its boot: without the boot's id a pid file could come true again after a reboot.
    return None if fields is None or fields[0] == "Z" else f"{_boot_id()} {fields[19]}"


@cache
def _boot_id() -> str:
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return ""


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the name before them may hold anything."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _started_by_ps(pid: int) -> str | None:
    said = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return said.strip() or None


def family(token: str, leader: int | None) -> list[int]:
    """Every living process that carries the token, and every one in the session of a leader known to be ours."""
    if not PROC.is_dir():
        return [leader] if leader else []
    mark = f"{TOKEN}={token}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        fields = _stat(pid)
        if fields is None or fields[0] == "Z":
            continue
        if (leader is not None and int(fields[3]) == leader) or _carries(entry, mark):
            found.append(pid)
    return found


def _carries(entry: Path, mark: bytes) -> bool:
    try:
        return mark in (entry / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False


def rss_bytes(pid: int) -> int:
    """Resident memory; 0 where the kernel does not tell."""
    try:
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
