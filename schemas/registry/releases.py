"""Releases and the few acts on them.

One row of ``pointers`` says which release is current, which was before it (backup) and which is tried by a share of
the users (canary): each act is one transaction, so a reader sees the old or the new, never half. Every act is
recorded with who, when and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from schemas.errors import ReleaseError, StoreError
from schemas.registry import leases
from schemas.registry.database import Database, person, wall_ms
from schemas.registry.tables import POINTER, acts, pointers, releases


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


class Pointer(msgspec.Struct, frozen=True):
    """Ids of what serves. ``changes`` counts the acts, so it names a state of the registry."""

    current: str | None = None
    backup: str | None = None
    canary: str | None = None
    canary_share: float = 0.0  # of the users
    changes: int = 0

    @property
    def kept(self) -> set[str]:
        """What must not be removed."""
        return {name for name in (self.current, self.backup, self.canary) if name}


class Registry:
    """The acts. Thread-safe; each opens its own transaction. See ``Database`` for what opening it raises.

    An act that is given a lease does nothing once that lease was lost (LeaseLostError).
    """

    def __init__(self, url: str | None = None) -> None:
        self.database = Database(url)
        self.engine = self.database.engine

    def publish(self, row: ReleaseRow, *, why: str) -> bool:
        """Add a release as *future*. False when it is already there: publishing twice changes nothing."""
        values = msgspec.to_builtins(row) | {
            "metrics": msgspec.json.encode(row.metrics).decode(),
            "status": Status.FUTURE.value,
        }
        try:
            with self.database.write() as db:
                db.execute(insert(releases).values(values))
                _record(db, "publish", row.id, why)
        except IntegrityError:
            return False
        return True

    def promote(self, release_id: str, *, why: str, force: bool = False, lease: leases.Lease | None = None) -> bool:
        """Make it current; the one before becomes the backup, and its own canary ends. False when it already is.

        Raises:
            ReleaseError: unknown, marked bad (unless ``force``), or another one is tried (unless ``force``).
            StoreError: the registry went away; the promotion was done or not, never half.
        """
        try:
            with self.database.write() as db:
                if lease:
                    leases.check(self.database, db, lease)
                row = _get(db, release_id)
                if row.status is Status.BAD and not force:
                    mend = "Build a new one, or promote it with --force."
                    raise ReleaseError("marked bad", where=release_id, mend=mend)
                pointer = _pointer(db)
                if pointer.canary not in (None, release_id) and not force:
                    raise _tried(pointer)
                return _promote(db, pointer, release_id, why)
        except IntegrityError:  # two that were the first ever
            raise StoreError(
                "somebody else promoted meanwhile", where=release_id, mend="Look at what is current and try again."
            ) from None

    def succeed(self, release_id: str, parent: str, *, why: str) -> bool:
        """Let a release that grew from ``parent`` take its place: a backup and a canary stay as they are.

        False, and nothing done, when ``parent`` is not current. Raises ``ReleaseError`` when it is marked bad.
        """
        with self.database.write() as db:
            pointer = _pointer(db)
            if _get(db, release_id).status is Status.BAD:
                raise ReleaseError("marked bad", where=release_id, mend="Withdraw what was wrong with it.")
            if pointer.current != parent or release_id == parent:
                return False
            _move(db, pointer, current=release_id)
            for name, status in ((parent, Status.RETIRED), (release_id, Status.CURRENT)):
                db.execute(update(releases).where(releases.c.id == name).values(status=status.value))
            _record(db, "succeed", release_id, why)
        return True

    def rollback(self, *, why: str, leaving: str | None = None, lease: leases.Lease | None = None) -> str | None:
        """Make the backup current again and return its id. A canary ends in the same transaction.

        With ``leaving`` only that release is left: None, and nothing done, when it is not current. So two who answer
        the same alert do not undo each other.

        Raises:
            ReleaseError: there is no backup, or it is marked bad.
        """
        with self.database.write() as db:
            if lease:
                leases.check(self.database, db, lease)
            pointer = _pointer(db)
            if leaving is not None:
                _get(db, leaving)
                if leaving != pointer.current:
                    return None
            if pointer.backup is None:
                raise ReleaseError("no backup to go back to", mend="Promote a release by its id.")
            if _get(db, pointer.backup).status is Status.BAD:
                raise ReleaseError(
                    "the backup is marked bad", where=pointer.backup, mend="Promote a good release by its id."
                )
            if pointer.canary:
                _record(db, "end canary", pointer.canary, why)
            _promote(db, pointer, pointer.backup, why)
            return pointer.backup

    def canary(self, release_id: str, share: float, *, why: str) -> bool:
        """Let ``share`` of the users (0 < share ≤ 1) be served by it. False when it is so already.

        Raises:
            ReleaseError: unknown, bad, current, a share out of range, nothing is current yet, or another is tried.
        """
        if not 0 < share <= 1:
            raise ReleaseError("a share is above 0 and at most 1", where="canary", value=share, mend="As in 0.05.")
        with self.database.write() as db:
            row, pointer = _get(db, release_id), _pointer(db)
            if row.status is Status.BAD:
                raise ReleaseError("marked bad", where=release_id, mend="Build a new one.")
            if pointer.current in (None, release_id):
                what = "it is current" if pointer.current else "nothing is current yet"
                raise ReleaseError(what, where=release_id, mend="See `./beforehand release list`.")
            if pointer.canary not in (None, release_id):
                raise _tried(pointer)
            if (pointer.canary, pointer.canary_share) == (release_id, share):
                return False
            _move(db, pointer, canary=release_id, canary_share=share)
            _record(db, "canary", release_id, f"{share:.3g} of the users: {why}")
        return True

    def end_canary(self, *, why: str) -> str | None:
        """Nobody is served by the canary any more; its id, None when there was none."""
        with self.database.write() as db:
            pointer = _pointer(db)
            if pointer.canary:
                _move(db, pointer, canary=None, canary_share=0.0)
                _record(db, "end canary", pointer.canary, why)
            return pointer.canary

    def mark_bad(self, release_id: str, *, why: str) -> None:
        """Never promote it again; its canary ends. The current release can't be marked: roll back first."""
        with self.database.write() as db:
            if _get(db, release_id).status is Status.CURRENT:
                raise ReleaseError("it is current", where=release_id, mend="Roll back first.")
            pointer = _pointer(db)
            if pointer.canary == release_id:
                _move(db, pointer, canary=None, canary_share=0.0)
            db.execute(update(releases).where(releases.c.id == release_id).values(status=Status.BAD.value))
            _record(db, "bad", release_id, why)

    def remove(self, release_id: str, *, why: str) -> bool:
        """Forget a release whose files are about to be deleted; a bad one keeps its row, and with it the mark.

        Raises:
            ReleaseError: it is current, backup or canary.
        """
        with self.database.write() as db:
            row = _get(db, release_id)
            if release_id in _pointer(db).kept:
                raise ReleaseError("it serves, or is kept to serve again", where=release_id)
            if row.status is not Status.BAD:
                db.execute(delete(releases).where(releases.c.id == release_id))
            _record(db, "gc", release_id, why)
            return row.status is not Status.BAD

    def get(self, release_id: str) -> ReleaseRow:
        """One release by id. Raises ReleaseError when it is unknown."""
        with self.database.read() as db:
            return _get(db, release_id)

    def pointer(self) -> Pointer:
        """What serves."""
        with self.database.read() as db:
            return _pointer(db, lock=False)

    def current(self) -> ReleaseRow | None:
        """The release that serves."""
        with self.database.read() as db:
            current = _pointer(db, lock=False).current
            return _get(db, current) if current else None

    def built_from(self, input_hash: str) -> ReleaseRow | None:
        """The newest release built from these inputs, if any."""
        return next((row for row in self.all() if row.input_hash == input_hash), None)

    def all(self) -> Sequence[ReleaseRow]:
        """Every release, newest first."""
        with self.database.read() as db:
            rows = db.execute(select(releases).order_by(releases.c.made_at.desc())).all()
        return [_row(tuple(r)) for r in rows]

    def history(self) -> list[dict[str, object]]:
        """Every act, newest first."""
        with self.database.read() as db:
            return [dict(r) for r in db.execute(select(acts).order_by(acts.c.number.desc())).mappings()]


def _row(values: tuple[str, str, str, str, str, int]) -> ReleaseRow:
    name, path, input_hash, metrics, status, made_at = values
    return ReleaseRow(name, path, input_hash, msgspec.json.decode(metrics), Status(status), made_at)


def _get(db: Connection, release_id: str) -> ReleaseRow:
    found = db.execute(select(releases).where(releases.c.id == release_id)).first()
    if found is None:
        raise ReleaseError("no such release", where=release_id, mend="See `./beforehand release list`.")
    return _row(tuple(found))


def _pointer(db: Connection, *, lock: bool = True) -> Pointer:
    """The pointer; with ``lock`` no other act moves it until the transaction ends."""
    query = select(pointers).where(pointers.c.name == POINTER)
    row = db.execute(query.with_for_update() if lock else query).first()
    return Pointer(row.current, row.backup, row.canary, row.canary_share, row.changes) if row else Pointer()


def _move(db: Connection, pointer: Pointer, **values: str | float | None) -> None:
    where = pointers.c.name == POINTER
    db.execute(update(pointers).where(where).values(changes=pointer.changes + 1, **values))


def _promote(db: Connection, pointer: Pointer, release_id: str, why: str) -> bool:
    if pointer.current == release_id:
        return False
    if pointer.changes == 0:
        db.execute(insert(pointers).values(name=POINTER, current=release_id, backup=None, changes=1, canary_share=0))
    else:
        _move(db, pointer, current=release_id, backup=pointer.current, canary=None, canary_share=0.0)
        for old, status in ((pointer.backup, Status.RETIRED), (pointer.current, Status.BACKUP)):
            keep_bad = (releases.c.id == old) & (releases.c.status != Status.BAD.value)
            db.execute(update(releases).where(keep_bad).values(status=status.value))
    db.execute(update(releases).where(releases.c.id == release_id).values(status=Status.CURRENT.value))
    _record(db, "promote", release_id, why)
    return True


def _tried(pointer: Pointer) -> ReleaseError:
    return ReleaseError(
        f"{pointer.canary} is tried by {pointer.canary_share:.3g} of the users",
        where="canary",
        mend="Promote that one, or end its trial with `./beforehand release end-canary`.",
    )


def _record(db: Connection, act: str, release_id: str, why: str) -> None:
    db.execute(insert(acts).values(at=wall_ms(), who=person(), act=act, release=release_id, why=why))
