"""The registry's database: opening it, its transactions, its clock. SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import getpass
import os
import socket
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from schemas.errors import StoreError
from schemas.locations import registry_url
from schemas.registry.tables import FIRST_REVISION, REVISION, metadata, releases, revision

BUSY_MS = 10_000
WAL_RETRY_S = 0.01
CONNECT_S = 5
CHECK = "Check $BEFOREHAND_REGISTRY and that the folder or server is there."
ADDRESS = "Write it as in postgresql://user@host/beforehand; write @, : and / of a password as %40, %3A and %2F."


class Database:
    """One registry. Thread-safe. A new database gets today's tables; an older one is refused until it is upgraded.

    Args:
        url: SQLAlchemy's; ``postgresql://`` means the driver psycopg.
        upgrading: leave the tables as they are found, whatever their revision.

    Raises:
        StoreError: it can't be opened, or it is of an older revision.
    """

    def __init__(self, url: str | None = None, *, upgrading: bool = False) -> None:
        try:
            parsed = make_url(url or registry_url())
        except (ArgumentError, ValueError) as error:  # its text is not shown: it may hold a password
            raise StoreError("no address of a database", where="BEFOREHAND_REGISTRY", mend=ADDRESS) from error
        where = parsed.render_as_string(hide_password=True)
        try:
            if parsed.drivername == "postgresql":
                parsed = parsed.set(drivername="postgresql+psycopg")
            self.url = parsed.render_as_string(hide_password=True)
            self.engine: Engine = _engine(parsed.render_as_string(hide_password=False))
            if not upgrading:
                self._make_or_check()
        except ModuleNotFoundError as error:
            raise StoreError(f"its driver is not installed: {error.name}", where=where, mend=CHECK) from None
        except (SQLAlchemyError, ArgumentError) as error:
            raise StoreError(f"the registry can't be opened: {_short(error)}", where=where, mend=CHECK) from None

    @contextmanager
    def read(self) -> Generator[Connection]:
        """A transaction that reads. Raises StoreError when the database can't be reached."""
        try:
            with self.engine.connect() as db:
                yield db
        except SQLAlchemyError as error:
            raise self.gone(error) from error

    @contextmanager
    def write(self) -> Generator[Connection]:
        """A transaction that writes: all of it or nothing. One at a time on SQLite, by row on PostgreSQL.

        Raises:
            StoreError: the database went away; when that was at the commit, the act may be done or not, never half.
            IntegrityError: a row with this key is there already.
        """
        try:
            with self.engine.execution_options(writes=True).begin() as db:
                yield db
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            raise self.gone(error) from error

    def gone(self, error: SQLAlchemyError) -> StoreError:
        """What is told when a statement fails."""
        mend = "See that it runs, look at `./beforehand release list`, and try again: every act is whole or not done."
        return StoreError(f"the registry did not answer: {_short(error)}", where=self.url, mend=mend)

    def now_ms(self, db: Connection) -> int:
        """The database's own clock, so that hosts whose clocks differ agree on a lease's end."""
        if self.engine.dialect.name == "sqlite":  # on this host, by its nature
            return int(time.time() * 1000)
        return int(db.execute(text("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)")).scalar_one())

    def found_revision(self) -> str | None:
        """What the database holds; None when it is empty. Raises StoreError when it can't be read."""
        try:
            return self._found()
        except SQLAlchemyError as error:
            raise StoreError(f"the registry can't be read: {_short(error)}", where=self.url, mend=CHECK) from None

    def _found(self) -> str | None:
        with self.engine.connect() as db:
            tables = set(inspect(db).get_table_names())
            if revision.name in tables:
                return db.execute(select(revision.c.version_num)).scalar()
            return FIRST_REVISION if releases.name in tables else None

    def _make_or_check(self) -> None:
        found = self._found()
        if found is None:
            try:
                with self.engine.execution_options(writes=True).begin() as db:
                    metadata.create_all(db)
                    db.execute(insert(revision).values(version_num=REVISION))
            except SQLAlchemyError:  # somebody else made it at the same moment, or it really can't be made
                if self._found() is None:
                    raise
            found = self._found() or REVISION
        if found < REVISION:
            raise StoreError(
                f"the registry is of revision {found}, this code needs {REVISION}",
                where=self.url,
                mend="Run `./beforehand registry upgrade`: it only adds, what runs goes on.",
            )


def holder() -> str:
    """Who acts: ``user@host:pid``."""
    return f"{person()}@{host()}:{os.getpid()}"


def host() -> str:
    """Where process ids mean the same: the host's name and, on Linux, its process name space."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}/{space}"


def person() -> str:
    """The user's name; in a container without one, the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def wall_ms() -> int:
    """This host's clock, for what people read."""
    return int(time.time() * 1000)


def _engine(url: str) -> Engine:
    if url.startswith("postgresql"):
        return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": CONNECT_S})
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _sqlite_settings)
        event.listen(engine, "begin", _sqlite_begin)
    return engine


def _sqlite_settings(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes late and leaves out tables
    connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
    _use_wal(connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switches the file to a write-ahead log; a file that has one already needs no lock for it.

    SQLite asks nobody to wait here: of several that open a new file at once, the switch fails with "database is
    locked" whatever ``busy_timeout`` says, so the waiting is ours.
    """
    until = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(WAL_RETRY_S)


def _sqlite_begin(db: Connection) -> None:
    options: dict[str, Any] = dict(db.get_execution_options())
    # A writer that has read first can't wait for another one: it must say at once that it will write.
    db.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")


def _short(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
