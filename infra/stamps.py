"""Work that is done once: a lock against two launchers at a time, and a stamp of what the work was done from."""

from __future__ import annotations

import fcntl
import hashlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, waiting_for: str) -> Iterator[None]:
    """Hold `path` against other processes; the kernel lets go of it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another beforehand that is {waiting_for}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def digest(parts: Iterable[str | bytes]) -> str:
    """A hash of the parts in order; lengths are hashed too, so that parts cannot run into each other."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(f"{len(data)}:".encode())
        total.update(data)
    return total.hexdigest()


def read_stamp(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return None


def write_stamp(path: Path, stamp: str) -> None:
    """All or nothing: a launcher killed half-way leaves no stamp that promises finished work."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(stamp + "\n")
    partial.replace(path)


def say(text: str) -> None:
    """Progress goes to stderr, so that a verb's own output can be piped."""
    print(f"beforehand: {text}", file=sys.stderr, flush=True)
