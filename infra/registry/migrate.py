"""Bringing a registry to the revision of this code. Every step only adds: what runs meanwhile goes on."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from schemas.errors import StoreError
from schemas.registry.database import Database
from schemas.registry.tables import FIRST_REVISION, REVISION, revision


def config(db: Connection) -> Config:
    """Alembic's settings for migrations on ``db``."""
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent))
    settings.attributes["connection"] = db
    return settings


def upgrade(url: str | None = None, to: str = "head") -> tuple[str | None, str | None]:
    """Upgrade in one transaction; twice changes nothing. Returns the revisions before and after.

    Raises:
        StoreError: the registry can't be opened, is newer than this code, or a step failed; then nothing was changed.
    """
    database = Database(url, upgrading=True)
    before = database.found_revision()
    if before is not None and before > REVISION:
        mend = "Use the checkout that upgraded it; services of this one go on."
        raise StoreError(f"it is of revision {before}, newer than this code", where=database.url, mend=mend)
    try:
        with database.engine.execution_options(writes=True).begin() as db:
            settings = config(db)
            if before == FIRST_REVISION and not db.dialect.has_table(db, revision.name):
                command.stamp(settings, FIRST_REVISION)
            command.upgrade(settings, to)
    except SQLAlchemyError as error:
        raise database.gone(error) from error
    return before, database.found_revision()
