"""Canary in the pointer; leases, builds, freshness, plans, forecasts."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("pointers", sa.Column("canary", sa.String(64)))
    op.add_column("pointers", sa.Column("canary_share", sa.Float, nullable=False, server_default="0"))
    _leases()
    _builds()
    op.create_table(
        "plans",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("data", sa.String(128), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String(256), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
    )
    op.create_table(
        "forecasts",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String(256), nullable=False),
        sa.Column("forecast", sa.Text, nullable=False),
    )


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("holder", sa.String(256), nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("about", sa.Text, nullable=False),
        sa.Column("taken_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )


def _builds() -> None:
    op.create_table(
        "builds",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("data", sa.String(128), nullable=False),
        sa.Column("stage", sa.String(64), nullable=False),
        sa.Column("input_hash", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("who", sa.String(256), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("begun_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("seconds", sa.Float),
        sa.Column("cpu_s", sa.Float),
        sa.Column("num_bytes", sa.BigInteger),
    )
    op.create_index("builds_by_stage", "builds", ["stage", "data", "number"])
    op.create_table(
        "freshness",
        sa.Column("asset", sa.String(64), primary_key=True),
        sa.Column("data", sa.String(128), primary_key=True),
        sa.Column("input_hash", sa.String(64), nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
        sa.Column("checked_at", sa.BigInteger, nullable=False),
    )
