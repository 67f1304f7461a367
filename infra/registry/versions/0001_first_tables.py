"""The tables of 0.1.0: releases, pointers, acts."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "releases",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("input_hash", sa.String(64), nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_releases_input_hash", "releases", ["input_hash"])
    op.create_table(
        "pointers",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("current", sa.String(64)),
        sa.Column("backup", sa.String(64)),
        sa.Column("changes", sa.Integer, nullable=False),
    )
    op.create_table(
        "acts",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", sa.String(128), nullable=False),
        sa.Column("act", sa.String(16), nullable=False),
        sa.Column("release", sa.String(64), nullable=False),
        sa.Column("why", sa.Text, nullable=False),
    )
