"""The registry's tables. A change here needs a migration in ``infra/registry/versions`` and a new ``REVISION``.

Migrations only add (tables, columns with defaults): services of the version before go on while the new one rolls out.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, String, Table, Text

REVISION = "0002"
"""Of these tables; ordered as text."""
FIRST_REVISION = "0001"
"""Of a registry made before revisions were written down."""
POINTER = "default"

metadata = MetaData()

revision = Table("alembic_version", metadata, Column("version_num", String(32), primary_key=True))
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
    Column("canary", String(64)),
    Column("canary_share", Float, nullable=False, server_default="0"),  # of the users
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
leases = Table(
    "leases",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("holder", String(256), nullable=False),
    Column("token", BigInteger, nullable=False),  # grows with every holder
    Column("about", Text, nullable=False),
    Column("taken_at", BigInteger, nullable=False),  # ms, of the database's clock
    Column("expires_at", BigInteger, nullable=False),  # ms; 0: given back
)
builds = Table(
    "builds",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("data", String(128), nullable=False),
    Column("stage", String(64), nullable=False),
    Column("input_hash", String(64), nullable=False),
    Column("state", String(16), nullable=False),  # running, done, failed
    Column("who", String(256), nullable=False),
    Column("why", Text, nullable=False),
    Column("begun_at", BigInteger, nullable=False),  # ms
    Column("ended_at", BigInteger),
    Column("seconds", Float),
    Column("cpu_s", Float),
    Column("num_bytes", BigInteger),
    Index("builds_by_stage", "stage", "data", "number"),
)
freshness = Table(
    "freshness",
    metadata,
    Column("asset", String(64), primary_key=True),
    Column("data", String(128), primary_key=True),
    Column("input_hash", String(64), nullable=False),
    Column("made_at", BigInteger, nullable=False),  # ms, when it was computed
    Column("checked_at", BigInteger, nullable=False),  # ms, when it was last found to be what its inputs give
)
plans = Table(
    "plans",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False),  # of the plan file that was applied
    Column("digest", String(64), nullable=False),  # of the plan
    Column("plan", Text, nullable=False),  # JSON
    Column("data", String(128), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("who", String(256), nullable=False),
    Column("why", Text, nullable=False),
)
forecasts = Table(
    "forecasts",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("who", String(256), nullable=False),
    Column("forecast", Text, nullable=False),  # JSON
)
