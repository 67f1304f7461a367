"""The registry of releases: SQLAlchemy tables and the few acts on them. SQLite by default, PostgreSQL by URL.

One row of ``pointers`` says which release is current and which was before it (backup): promotion and rollback
are one transaction each, so a reader sees the old or the new one, never half. Every act is recorded with who, when
and why.
"""

from __future__ import annotations

import getpass
import sqlite3
import time
from collections.abc import Sequence
from enum import StrEnum

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from schemas.errors import ReleaseError, StoreError
from schemas.locations import registry_url

metadata = MetaData()

releases = Table(
    "releases",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("path", Text, nullable=False),
    Column("input_hash", String(64), nullable=False, index=True),
    Column("metrics", Text, nullable=False),  # JSON
    Column("status", String(16), nullable=False),
    Column("made_at", BigInteger, nullable=False),  # ms
)
pointers = Table(
    "pointers",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("current", String(64)),
    Column("backup", String(64)),
    Column("changes", Integer, nullable=False),
)
acts = Table(
    "acts",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),  # ms
    Column("who", String(128), nullable=False),
    Column("act", String(16), nullable=False),
    Column("release", String(64), nullable=False),
    Column("why", Text, nullable=False),
)
POINTER = "default"


class Status(StrEnum):
    """``bad`` is never promoted again without force."""

    FUTURE = "future"
    CURRENT = "current"
    BACKUP = "backup"
    RETIRED = "retired"
    BAD = "bad"


class ReleaseRow(msgspec.Struct, frozen=True):
    """One release as the registry knows it."""

    id: str
    path: str
    input_hash: str
    metrics: dict[str, float]
    status: Status
    made_at: int


class Registry:
    """The acts. Thread-safe; each opens its own transaction."""

    def __init__(self, url: str | None = None) -> None:
        self.url = url or registry_url()
        self.engine: Engine = create_engine(self.url)
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _sqlite_settings)
        try:
            metadata.create_all(self.engine)
        except SQLAlchemyError as error:
            raise StoreError(
                f"the registry can't be opened: {error}",
                where=self.url,
                mend="Check $BEFOREHAND_REGISTRY and that the folder or server is there.",
            ) from None

    def publish(self, row: ReleaseRow, *, why: str) -> bool:
        """Add a release as *future*. False when it is already there: publishing twice changes nothing."""
        values = msgspec.to_builtins(row) | {
            "metrics": msgspec.json.encode(row.metrics).decode(),
            "status": Status.FUTURE.value,
        }
        try:
            with self.engine.begin() as db:
                db.execute(insert(releases).values(values))
                db.execute(insert(acts).values(_act("publish", row.id, why)))
        except IntegrityError:
            return False
        return True

    def promote(self, release_id: str, *, why: str, force: bool = False) -> bool:
        """Make it current; the one before becomes the backup. False when it already is.

        Raises:
            ReleaseError: unknown, or marked bad (unless ``force``).
            StoreError: somebody else promoted at the same moment.
        """
        row = self.get(release_id)
        if row.status is Status.BAD and not force:
            raise ReleaseError("marked bad", where=release_id, mend="Build a new one, or promote it with --force.")
        try:
            with self.engine.begin() as db:
                return _promote(db, release_id, why)
        except (IntegrityError, OperationalError):
            raise StoreError(
                "somebody else promoted meanwhile", where=release_id, mend="Look at what is current and try again."
            ) from None

    def rollback(self, *, why: str) -> str:
        """Make the backup current again and return its id.

        Raises:
            ReleaseError: there is no backup.
        """
        with self.engine.connect() as db:
            pointer = db.execute(select(pointers).where(pointers.c.name == POINTER)).first()
        if pointer is None or pointer.backup is None:
            raise ReleaseError("no backup to go back to", mend="Promote a release by its id.")
        self.promote(pointer.backup, why=why)
        return pointer.backup

    def mark_bad(self, release_id: str, *, why: str) -> None:
        """Never promote it again. The current release can't be marked: roll back first."""
        if self.get(release_id).status is Status.CURRENT:
            raise ReleaseError("it is current", where=release_id, mend="Roll back first.")
        with self.engine.begin() as db:
            db.execute(update(releases).where(releases.c.id == release_id).values(status=Status.BAD.value))
            db.execute(insert(acts).values(_act("bad", release_id, why)))

    def get(self, release_id: str) -> ReleaseRow:
        """One release by id. Raises ReleaseError when it is unknown."""
        found = [row for row in self.all() if row.id == release_id]
        if not found:
            raise ReleaseError("no such release", where=release_id, mend="See `./beforehand release list`.")
        return found[0]

    def current(self) -> ReleaseRow | None:
        """The release that serves."""
        with self.engine.connect() as db:
            pointer = db.execute(select(pointers).where(pointers.c.name == POINTER)).first()
        return self.get(pointer.current) if pointer and pointer.current else None

    def built_from(self, input_hash: str) -> ReleaseRow | None:
        """The newest release built from these inputs, if any."""
        return next((row for row in self.all() if row.input_hash == input_hash), None)

    def all(self) -> Sequence[ReleaseRow]:
        """Every release, newest first."""
        with self.engine.connect() as db:
            rows = db.execute(select(releases).order_by(releases.c.made_at.desc())).all()
        return [
            ReleaseRow(r.id, r.path, r.input_hash, msgspec.json.decode(r.metrics), Status(r.status), r.made_at)
            for r in rows
        ]

    def history(self) -> list[dict[str, object]]:
        """Every act, newest first."""
        with self.engine.connect() as db:
            return [dict(r) for r in db.execute(select(acts).order_by(acts.c.number.desc())).mappings()]


def _promote(db: Connection, release_id: str, why: str) -> bool:
    """Move the pointer inside the caller's transaction; the count of changes makes the loser of a race fail."""
    pointer = db.execute(select(pointers).where(pointers.c.name == POINTER).with_for_update()).first()
    if pointer is None:
        db.execute(insert(pointers).values(name=POINTER, current=release_id, backup=None, changes=1))
    elif pointer.current == release_id:
        return False
    else:
        moved = db.execute(
            update(pointers)
            .where(pointers.c.name == POINTER, pointers.c.changes == pointer.changes)
            .values(current=release_id, backup=pointer.current, changes=pointer.changes + 1)
        )
        if moved.rowcount != 1:
            raise StoreError(
                "somebody else promoted meanwhile", where=release_id, mend="Look at what is current and try again."
            )
        for old, status in ((pointer.backup, Status.RETIRED), (pointer.current, Status.BACKUP)):
            keep_bad = (releases.c.id == old) & (releases.c.status != Status.BAD.value)
            db.execute(update(releases).where(keep_bad).values(status=status.value))
    db.execute(update(releases).where(releases.c.id == release_id).values(status=Status.CURRENT.value))
    db.execute(insert(acts).values(_act("promote", release_id, why)))
    return True


def _act(act: str, release_id: str, why: str) -> dict[str, str | int]:
    return {
        "at": int(time.time() * 1000),
        "who": getpass.getuser(),
        "act": act,
        "release": release_id,
        "why": why,
    }


def _sqlite_settings(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA busy_timeout=10000")
