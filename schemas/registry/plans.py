"""Which plans were applied, and what was forecast."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import desc, insert, select

from schemas.registry import leases
from schemas.registry.database import Database, holder, wall_ms
from schemas.registry.tables import forecasts, plans


class Applied(msgspec.Struct, frozen=True):
    """One plan that was applied: ``plan`` is its JSON, ``id`` that of the frozen plan file."""

    number: int
    id: str
    digest: str
    plan: str
    data: str
    at: int
    who: str
    why: str


class Plans:
    """Thread-safe; each act is a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def apply(self, plan_id: str, digest: str, plan: str, data: str, *, why: str, lease: leases.Lease) -> int:
        """Write down that a plan is in force; returns its number. Raises LeaseLostError."""
        with self._database.write() as db:
            leases.check(self._database, db, lease)
            row = insert(plans).values(
                id=plan_id, digest=digest, plan=plan, data=data, at=wall_ms(), who=holder(), why=why
            )
            return int(db.execute(row.returning(plans.c.number)).scalar_one())

    def last(self) -> Applied | None:
        """The plan in force."""
        with self._database.read() as db:
            row = db.execute(select(plans).order_by(desc(plans.c.number)).limit(1)).first()
        return Applied(*row) if row else None

    def by_id(self, plan_id: str) -> Applied | None:
        """The newest application of this plan file."""
        with self._database.read() as db:
            query = select(plans).where(plans.c.id == plan_id).order_by(desc(plans.c.number)).limit(1)
            row = db.execute(query).first()
        return Applied(*row) if row else None

    def forecast(self, forecast: dict[str, Any]) -> int:
        """Keep a forecast, to be judged by what comes; returns its number."""
        with self._database.write() as db:
            raw = msgspec.json.encode(forecast).decode()
            row = insert(forecasts).values(at=wall_ms(), who=holder(), forecast=raw)
            return int(db.execute(row.returning(forecasts.c.number)).scalar_one())

    def last_forecast(self) -> tuple[int, dict[str, Any]] | None:
        """When (ms) and what was forecast last."""
        with self._database.read() as db:
            row = db.execute(select(forecasts).order_by(desc(forecasts.c.number)).limit(1)).first()
        return (int(row.at), msgspec.json.decode(row.forecast)) if row else None
