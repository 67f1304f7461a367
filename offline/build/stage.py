"""Stages: what a stage depends on, when it is skipped, and how its result replaces the old one.

::

    work/<data set>/<stage>/stage.json     what is current: the hash of its inputs, the result, the seconds
    work/<data set>/<stage>/<hash>/        the stage's files

A stage writes into a draft, the draft is renamed, then ``stage.json`` is replaced: a kill at any point leaves the old
result or the new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from schemas import cli
from schemas.errors import DataError
from schemas.locations import state_dir
from schemas.plan import Plan
from schemas.release import file_entry

VERSION = 5
"""Raise it when a stage's code gives other results for the same inputs."""
RECORD = "stage.json"
Result = dict[str, Any]


class Record(msgspec.Struct):
    """``stage.json``."""

    hash: str
    result: Result
    seconds: float


@dataclass
class Build:
    """One build: a data set, a plan, and where each stage's files are (by stage, once it ran)."""

    name: str
    plan: Plan
    force: bool = False
    threads: int = 1
    records: dict[str, Record] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        """The data set's folder."""
        return state_dir() / "data" / self.name

    @property
    def work(self) -> Path:
        """Where the stages keep their files."""
        return state_dir() / "work" / self.name

    def folder(self, stage: str) -> Path:
        """A finished stage's files."""
        return self.work / stage / self.records[stage].hash

    def result(self, stage: str) -> Result:
        """A finished stage's result."""
        return self.records[stage].result


@dataclass(frozen=True)
class Stage:
    """``files`` of the data set and ``settings`` of the plan that it reads; ``after`` are the stages it builds on.

    ``valid`` may refuse to skip (a release that was deleted, say).
    """

    name: str
    run: Callable[[Build, Path], Result]
    settings: Callable[[Plan], object]
    files: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    valid: Callable[[Result], bool] = lambda _result: True

    def input_hash(self, build: Build) -> str:
        """Changes whenever anything that the stage reads does."""
        parts = {
            "version": VERSION,
            "stage": self.name,
            "settings": self.settings(build.plan),
            "files": {name: file_entry(build.data / name).sha256 for name in self.files},
            "after": {name: build.records[name].hash for name in self.after},
        }
        return hashlib.sha256(msgspec.json.encode(parts, order="sorted", enc_hook=float)).hexdigest()[:16]


def run_stage(stage: Stage, build: Build) -> Record:
    """Run the stage, or find that nothing changed; either way its record is in ``build.records`` afterwards."""
    wanted = stage.input_hash(build)
    old = read_record(build, stage.name)
    if old and old.hash == wanted and not build.force and stage.valid(old.result):
        build.records[stage.name] = old
        cli.say(f"[green]✓[/green] {stage.name}: unchanged")
        return old
    begun = time.monotonic()
    with cli.step(stage.name) as made:
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=_made(build.work / stage.name)))
        try:
            result = stage.run(build, draft)
            _replace(draft, build.work / stage.name / wanted)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        record = Record(wanted, result, round(time.monotonic() - begun, 2))
        write_atomically(build.work / stage.name / RECORD, msgspec.json.encode(record))
        made(str(result.get("says", "")))
    _prune(build.work / stage.name, wanted)
    build.records[stage.name] = record
    return record


def read_record(build: Build, stage: str) -> Record | None:
    """The stage's current record, when it has one and its files are there."""
    try:
        record = msgspec.json.decode((build.work / stage / RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    return record if (build.work / stage / record.hash).is_dir() else None


def require(build: Build, stage: Stage) -> None:
    """Take what an earlier run of ``stage`` left. Raises ``DataError`` when there is nothing."""
    record = read_record(build, stage.name)
    if record is None:
        raise DataError(
            f"the stage {stage.name} has not run",
            where=str(build.work),
            mend=f"Run `./beforehand build {stage.name} --data {build.name}` first.",
        )
    build.records[stage.name] = record


@contextmanager
def locked(build: Build) -> Iterator[None]:
    """One build of a data set at a time: a second one waits, and then finds everything unchanged."""
    with (_made(build.work) / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            cli.say(f"another build of {build.name} is running: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, raw: bytes) -> None:
    """Readers see the old bytes or the new."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(raw)
    draft.replace(path)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _replace(draft: Path, final: Path) -> None:
    draft.chmod(0o755)
    if final.exists():  # of the same inputs: a forced run, or one that was killed before its record
        final.rename(draft.with_suffix(".old"))
    draft.rename(final)
    shutil.rmtree(draft.with_suffix(".old"), ignore_errors=True)


def _prune(folder: Path, keep: str) -> None:
    for path in folder.iterdir():
        if path.is_dir() and path.name != keep:
            shutil.rmtree(path, ignore_errors=True)
