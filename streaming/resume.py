"""Where a new deployment takes its state from, so that an upgrade never silently starts without it."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from schemas.errors import StoreError
from schemas.locations import state_dir
from streaming.flink import Flink
from streaming.sql import JOB_NAME, JobSettings


class Made(msgspec.Struct, frozen=True):
    """What a job is made of: enough to start it again."""

    settings: JobSettings
    jars: list[str]  # copies of this state folder's own, which no build replaces


class Deployment(msgspec.Struct, frozen=True):
    """What this state folder knows of the newest deployment: ``stream/deployment.json``."""

    job_id: str
    started_from: str | None = None  # holds while the job has made no checkpoint of its own
    stopped_at: str | None = None  # the savepoint or checkpoint that a stop left
    made: Made | None = None
    previous: Made | None = None  # what an upgrade replaced


def remember(deployment: Deployment) -> None:
    """Write it down, all or nothing."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.encode(deployment))
    partial.replace(path)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Held while a deployment is made; the kernel lets go of it when the holder dies."""
    path = _path().with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def recall() -> Deployment | None:
    """The newest deployment from this state folder."""
    try:
        return msgspec.json.decode(_path().read_bytes(), type=Deployment)
    except FileNotFoundError:
        return None


def keep_jars(jars: Sequence[Path]) -> list[Path]:
    """Copies under their content's hash, for a return to this job when the build has replaced the jars."""
    kept: list[Path] = []
    for jar in jars:
        digest = hashlib.sha256(jar.read_bytes()).hexdigest()[:16]
        copy = _path().parent / "jars" / digest / jar.name
        if not copy.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            partial = copy.with_suffix(".partial")
            shutil.copyfile(jar, partial)
            partial.replace(copy)
        kept.append(copy)
    return kept


def start_of(job_id: str) -> str | None:
    """What a job was started from, where this state folder knows it."""
    last = recall()
    return last.started_from if last and last.job_id == job_id else None


def choose(flink: Flink, *, named: str | None, fresh: bool) -> str | None:
    """The savepoint or checkpoint to start from: the named one, else what the newest job left; None starts anew.

    The newest job is the cluster's, unless this state folder knows a newer one. A job that failed before it had any
    state, as with a wrong ``--from``, is passed over.

    Raises:
        StoreError: when there was a job and what it left cannot be looked for.
    """
    if named or fresh:
        return named
    last = recall()
    remembered = False
    for job in flink.jobs(JOB_NAME):
        if last and job.job_id == last.job_id:
            remembered = True
            break
        if path := flink.checkpoint(job.job_id):
            return path
    if last is None or last.stopped_at:
        return last.stopped_at if last else None
    own = flink.checkpoint(last.job_id) if remembered else _left_on_disk(flink, last.job_id)
    return own or last.started_from


def _left_on_disk(flink: Flink, job_id: str) -> str | None:
    """The newest complete checkpoint of a job that the cluster has forgotten: it was restarted since."""
    folder = flink.settings().get("execution.checkpointing.dir", "")
    place = urlsplit(folder)
    if place.scheme not in ("", "file") or not folder:
        raise StoreError(
            f"the cluster has forgotten job {job_id}, so its newest checkpoint is not known",
            where=folder or "execution.checkpointing.dir",
            mend="Name it with --from PATH, or start without state with --fresh.",
        )
    complete = Path(place.path, job_id).glob("chk-*/_metadata")
    newest = max(complete, key=lambda path: int(path.parent.name.removeprefix("chk-")), default=None)
    return newest.parent.as_uri() if newest else None


def _path() -> Path:
    return state_dir() / "stream" / "deployment.json"
