"""The registry: releases, what serves, builds and their cost, freshness, leases, plans and forecasts.

SQLAlchemy tables and the few acts on them, SQLite by default, PostgreSQL by URL. Migrations are in ``infra/registry``.
"""

from schemas.registry.database import Database
from schemas.registry.releases import Pointer, Registry, ReleaseRow, Status

__all__ = ["Database", "Pointer", "Registry", "ReleaseRow", "Status"]
