"""Leases: one holder at a time for a name, across processes and hosts.

A lease ends by itself: its holder renews it while it works, and a holder that died is followed by another after
``for_s``, at once on the same host. Every holder of a name gets a larger token. An act that must not be done by a
holder that was followed meanwhile calls ``check`` in the act's own transaction (fencing).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

import msgspec
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from schemas.errors import StoreError
from schemas.registry.database import Database, holder, host
from schemas.registry.tables import leases

FOR_S = 30.0
LOOK_EVERY_S = 0.5


class Lease(msgspec.Struct, frozen=True):
    """Who holds a name. Times in ms, of the database's clock."""

    name: str
    holder: str
    token: int
    about: str
    taken_at: int
    expires_at: int

    @property
    def ended(self) -> bool:
        """Whether its holder was a process of this host that is no more."""
        place, _, pid = self.holder.rpartition(":")
        if not pid.isdigit() or place.rpartition("@")[2] != host():
            return False
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


class LeaseHeldError(StoreError):
    """Somebody else holds it; ``lease`` says who, since when and for what."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        super().__init__(
            f"{lease.holder} holds it: {lease.about}",
            where=f"lease {lease.name}",
            mend="Wait until that has ended; a holder that died loses it within half a minute.",
        )


class LeaseLostError(StoreError):
    """The lease ended before the act: another holder may be at work, so nothing was done."""


def take(database: Database, name: str, *, about: str, who: str = "", for_s: float = FOR_S) -> Lease:
    """Become the holder of ``name`` for ``for_s`` seconds.

    Raises:
        LeaseHeldError: somebody else is, and is alive as far as can be known.
        StoreError: the registry can't be reached.
    """
    who = who or holder()
    try:
        with database.write() as db:
            now = database.now_ms(db)
            old = _row(db, name)
            new = Lease(name, who, (old.token if old else 0) + 1, about, now, now + int(for_s * 1000))
            if old is None:
                db.execute(insert(leases).values(msgspec.to_builtins(new)))
            elif old.expires_at > now and not old.ended:
                raise LeaseHeldError(old)
            else:
                same = (leases.c.name == name) & (leases.c.token == old.token)
                db.execute(update(leases).where(same).values(msgspec.to_builtins(new)))
            return new
    except IntegrityError:  # taken for the first time by two at once
        return take(database, name, about=about, who=who, for_s=for_s)


def renew(database: Database, lease: Lease, for_s: float = FOR_S) -> None:
    """Hold it for another ``for_s`` seconds. Raises LeaseLostError."""
    with database.write() as db:
        check(database, db, lease)
        until = database.now_ms(db) + int(for_s * 1000)
        db.execute(update(leases).where(leases.c.name == lease.name).values(expires_at=until))


def give_back(database: Database, lease: Lease) -> None:
    """End it now. One that was lost already is left to its new holder."""
    with database.write() as db:
        mine = (leases.c.name == lease.name) & (leases.c.token == lease.token)
        db.execute(update(leases).where(mine).values(expires_at=0))


def check(database: Database, db: Connection, lease: Lease) -> None:
    """In the transaction ``db``: raises LeaseLostError unless ``lease`` still holds."""
    row = _row(db, lease.name)
    if row is None or row.token != lease.token or row.expires_at <= database.now_ms(db):
        now_held = f", {row.holder} holds it now" if row and row.token != lease.token else ""
        raise LeaseLostError(
            f"the lease has ended{now_held}", where=f"lease {lease.name}", mend="Look at what is there and try again."
        )


@contextmanager
def held(
    database: Database, name: str, *, about: str, for_s: float = FOR_S, wait_s: float = 0.0
) -> Generator[tuple[Lease, Lease | None]]:
    """Hold ``name`` during the block, renewed from a thread; waits up to ``wait_s`` for another holder to end.

    Yields:
        The lease, and the lease of whoever was waited for (None: nobody).

    Raises:
        LeaseHeldError: the wait was not long enough.
    """
    lease, before = _wait(database, name, about, for_s, wait_s)
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(database, lease, for_s, done), name=f"lease {name}", daemon=True)
    beat.start()
    try:
        yield lease, before
    finally:
        done.set()
        beat.join(timeout=for_s)
        with suppress(StoreError):  # it ends by itself
            give_back(database, lease)


def all_held(database: Database) -> list[Lease]:
    """Every lease whose time has not passed, by name."""
    with database.read() as db:
        now = database.now_ms(db)
        rows = db.execute(select(leases).where(leases.c.expires_at > now).order_by(leases.c.name)).all()
        return [Lease(*row) for row in rows]


def _wait(database: Database, name: str, about: str, for_s: float, wait_s: float) -> tuple[Lease, Lease | None]:
    until, before = time.monotonic() + wait_s, None
    while True:
        try:
            return take(database, name, about=about, for_s=for_s), before
        except LeaseHeldError as error:
            before = error.lease
            if time.monotonic() >= until:
                raise
        time.sleep(LOOK_EVERY_S)


def _beat(database: Database, lease: Lease, for_s: float, done: threading.Event) -> None:
    while not done.wait(for_s / 3):
        try:
            renew(database, lease, for_s)
        except LeaseLostError:
            return
        except StoreError:
            continue  # until it is back, or the lease has ended


def _row(db: Connection, name: str) -> Lease | None:
    row = db.execute(select(leases).where(leases.c.name == name).with_for_update()).first()
    return Lease(*row) if row else None
