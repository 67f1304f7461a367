"""What was built, by whom, how long it took and how large it is; and how fresh each offline asset is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec
from sqlalchemy import desc, insert, select, update

from schemas.registry.database import Database, holder, wall_ms
from schemas.registry.tables import builds, freshness

LAST = 5
"""Past builds of a stage that its usual cost is taken from."""


class Usual(msgspec.Struct, frozen=True):
    """What a stage usually costs: medians of its last builds. ``of_data``: builds of this data set, or of any."""

    seconds: float
    cpu_s: float
    num_bytes: int
    num_builds: int
    of_data: bool


class BuildRow(msgspec.Struct, frozen=True):
    """One run of one stage."""

    number: int
    data: str
    stage: str
    input_hash: str
    state: str
    who: str
    why: str
    begun_at: int
    ended_at: int | None = None
    seconds: float | None = None
    cpu_s: float | None = None
    num_bytes: int | None = None


class FreshRow(msgspec.Struct, frozen=True):
    """How fresh an offline asset of a data set is. Times in ms."""

    asset: str
    data: str
    input_hash: str
    made_at: int
    checked_at: int


class Builds:
    """Thread-safe; each act is a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, data: str, stage: str, input_hash: str, why: str) -> int:
        """A stage starts; returns the build's number."""
        with self._database.write() as db:
            row = insert(builds).values(
                data=data,
                stage=stage,
                input_hash=input_hash,
                state="running",
                who=holder(),
                why=why,
                begun_at=wall_ms(),
            )
            return int(db.execute(row.returning(builds.c.number)).scalar_one())

    def end(self, number: int, *, seconds: float, cpu_s: float, num_bytes: int, failed: bool = False) -> None:
        """The stage has ended."""
        values = {"seconds": seconds, "cpu_s": cpu_s, "num_bytes": num_bytes, "ended_at": wall_ms()}
        with self._database.write() as db:
            state = "failed" if failed else "done"
            db.execute(update(builds).where(builds.c.number == number).values(state=state, **values))

    def usual(self, data: str, stage: str) -> Usual | None:
        """What the stage usually costs on this data set, or on any where this one was never built."""
        done = (builds.c.stage == stage) & (builds.c.state == "done")
        with self._database.read() as db:
            for here in (True, False):
                which = done & (builds.c.data == data) if here else done
                query = select(builds).where(which).order_by(desc(builds.c.number)).limit(LAST)
                rows = [BuildRow(*row) for row in db.execute(query)]
                if rows:
                    return _usual(rows, here)
        return None

    def last(self, limit: int = 50) -> list[BuildRow]:
        """The newest runs of stages, newest first."""
        with self._database.read() as db:
            return [BuildRow(*row) for row in db.execute(select(builds).order_by(desc(builds.c.number)).limit(limit))]

    def confirm(self, asset: str, data: str, input_hash: str, *, made: bool) -> None:
        """The asset is what its inputs give, now; ``made``: it was computed for that."""
        now = wall_ms()
        with self._database.write() as db:
            which = (freshness.c.asset == asset) & (freshness.c.data == data)
            old = db.execute(select(freshness.c.made_at).where(which).with_for_update()).scalar()
            made_at = now if made or old is None else int(old)
            values = {"input_hash": input_hash, "made_at": made_at, "checked_at": now}
            if old is None:
                db.execute(insert(freshness).values(asset=asset, data=data, **values))
            else:
                db.execute(update(freshness).where(which).values(values))

    def freshness(self) -> dict[str, FreshRow]:
        """Of each asset the newest row, whatever its data set."""
        with self._database.read() as db:
            rows = [FreshRow(*row) for row in db.execute(select(freshness).order_by(freshness.c.checked_at))]
        return {row.asset: row for row in rows}


def _usual(rows: Sequence[BuildRow], of_data: bool) -> Usual:
    return Usual(
        seconds=round(median(row.seconds or 0.0 for row in rows), 2),
        cpu_s=round(median(row.cpu_s or 0.0 for row in rows), 2),
        num_bytes=int(median(row.num_bytes or 0 for row in rows)),
        num_builds=len(rows),
        of_data=of_data,
    )
