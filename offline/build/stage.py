"""Stages: what a stage depends on, when it is skipped, and how its result replaces the old one.

::

    work/<data set>/<stage>/stage.json     what is current: the hash of its inputs, the result, the seconds
    work/<data set>/<stage>/<hash>/        the stage's files

``judge`` says whether a stage must run and why; ``run_stage`` and ``build --explain`` ask the same one.
A stage writes into a draft, the draft is renamed, then ``stage.json`` is replaced: a kill at any point leaves the old
result or the new one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from offline.build.accounts import recorded, size_of
from schemas import cli
from schemas.errors import DataError
from schemas.locations import state_dir
from schemas.plan import Plan
from schemas.registry import Registry
from schemas.registry.builds import Builds
from schemas.release import file_entry

VERSION = 14
"""Raise it when a stage's code gives other results for the same inputs."""
RECORD = "stage.json"
Result = dict[str, Any]


class Record(msgspec.Struct):
    """``stage.json``."""

    hash: str
    result: Result
    seconds: float
    parts: dict[str, Any] = {}
    """What ``hash`` is the hash of; empty in a record of an older version."""


@dataclass(frozen=True)
class Judgement:
    """What must be done about a stage: nothing when ``why`` is empty."""

    hash: str
    parts: dict[str, Any]
    why: tuple[str, ...]
    record: Record | None


@dataclass
class Build:
    """One build: a data set, a plan, and where each stage's files are (by stage, once it ran)."""

    name: str
    plan: Plan
    force: bool = False
    threads: int = 1
    processes: int = 1
    device: str = "cpu"
    records: dict[str, Record] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        """The data set's folder."""
        return state_dir() / "data" / self.name

    @property
    def work(self) -> Path:
        """Where the stages keep their files."""
        return state_dir() / "work" / self.name

    @cached_property
    def registry(self) -> Registry:
        """Where the build is written down."""
        return Registry()

    def folder(self, stage: str) -> Path:
        """A finished stage's files."""
        return self.work / stage / self.records[stage].hash

    def result(self, stage: str) -> Result:
        """A finished stage's result."""
        return self.records[stage].result


@dataclass(frozen=True)
class Stage:
    """``files`` of the data set and ``settings`` of the plan that it reads; ``after`` are the stages it builds on.

    ``valid`` may refuse to skip (a release that was deleted, say). ``makes``: the plan's asset that is done with it.
    """

    name: str
    run: Callable[[Build, Path], Result]
    settings: Callable[[Plan], object]
    files: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    valid: Callable[[Result], bool] = lambda _result: True
    makes: str = ""

    def parts(self, build: Build) -> dict[str, Any]:
        """Everything that the stage reads, by digest or value."""
        parts = {
            "version": VERSION,
            "stage": self.name,
            "settings": self.settings(build.plan),
            "files": {name: file_entry(build.data / name).sha256 for name in self.files},
            "after": {name: build.records[name].hash for name in self.after},
        }
        return msgspec.json.decode(msgspec.json.encode(parts, enc_hook=float))


def judge(stage: Stage, build: Build) -> Judgement:
    """Whether the stage must run, and why. The stages before it are in ``build.records``, run or only judged."""
    parts = stage.parts(build)
    wanted = hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]
    old = read_record(build, stage.name)
    if old is None:
        why: tuple[str, ...] = ("it has not run yet",)
    elif old.hash != wanted:
        why = _changed(old.parts, parts)
    elif not stage.valid(old.result):
        why = ("what it made is not in place any more",)
    else:
        why = ("forced",) if build.force else ()
    return Judgement(wanted, parts, why, old)


def _changed(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, ...]:
    why = [name for name in ("version", "settings") if old.get(name, new[name]) != new[name]]
    for kind, word in (("files", "file"), ("after", "stage")):
        before = old.get(kind, {})
        why += [f"{word} {name}" for name, value in new[kind].items() if before.get(name, value) != value]
    return tuple(f"{what} changed" for what in why) or ("its inputs changed",)


def run_stage(stage: Stage, build: Build) -> Record:
    """Run the stage, or find that nothing changed; either way its record is in ``build.records`` afterwards."""
    found = judge(stage, build)
    builds = Builds(build.registry.database)
    if not found.why:
        assert found.record is not None
        record = found.record
        cli.say(f"✓ {stage.name}: unchanged")
    else:
        with recorded(builds, build.name, stage.name, found.hash, ", ".join(found.why)) as measured:
            record = _run(stage, build, found)
            measured.num_bytes = size_of(build.work / stage.name / found.hash)
    build.records[stage.name] = record
    if stage.makes:
        builds.confirm(stage.makes, build.name, record.hash, made=bool(found.why))
    return record


def _run(stage: Stage, build: Build, found: Judgement) -> Record:
    begun = time.monotonic()
    with cli.step(stage.name) as made:
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=_made(build.work / stage.name)))
        try:
            result = stage.run(build, draft)
            _replace(draft, build.work / stage.name / found.hash)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        record = Record(found.hash, result, round(time.monotonic() - begun, 2), found.parts)
        write_atomically(build.work / stage.name / RECORD, msgspec.json.encode(record))
        made(str(result.get("says", "")))
    _prune(build.work / stage.name, found.hash)
    return record


def read_record(build: Build, stage: str) -> Record | None:
    """The stage's current record, when it has one and its files are there."""
    try:
        record = msgspec.json.decode((build.work / stage / RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    return record if (build.work / stage / record.hash).is_dir() else None


def require(build: Build, stage: Stage) -> None:
    """Take what an earlier run of ``stage`` left.

    Raises:
        DataError: there is nothing, or it was made from other inputs than are there now: a release mixes none.
    """
    found = judge(stage, build)
    if found.record is None or found.record.hash != found.hash:
        problem = "has not run" if found.record is None else f"is out of date: {', '.join(found.why)}"
        raise DataError(
            f"the stage {stage.name} {problem}",
            where=str(build.work),
            mend=f"Run `./beforehand build {stage.name} --data {build.name}` first.",
        )
    build.records[stage.name] = found.record


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
