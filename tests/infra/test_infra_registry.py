"""Migrations: from the first tables to today's, the same as made at once; nothing is lost, twice changes nothing."""

import json
import os
import sqlite3
import subprocess
from contextlib import closing

import pytest

from infra.paths import ROOT
from schemas.errors import StoreError
from schemas.registry import Registry, ReleaseRow, Status
from schemas.registry.tables import REVISION

PYTHON = ROOT / ".beforehand" / "envs" / "dags" / "bin" / "python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="no environment with Alembic: ./beforehand env dags"),
]
DIFFERENCES = """
import sys
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from infra.registry.migrate import upgrade
from schemas.registry.database import Database
from schemas.registry.tables import metadata
upgrade(sys.argv[1])
with Database(sys.argv[1]).engine.connect() as db:
    print(compare_metadata(MigrationContext.configure(db), metadata))
"""
AT_FIRST = "import sys; from infra.registry.migrate import upgrade; upgrade(sys.argv[1], to='0001')"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'registry.db'}"


def run(url: str, *words: str) -> str:
    environ = os.environ | {"BEFOREHAND_REGISTRY": url, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([PYTHON, *words], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def test_the_migrations_end_at_the_tables_of_the_code(url):
    assert run(url, "-c", DIFFERENCES, url) == "[]"


def test_an_old_registry_is_upgraded_and_keeps_its_releases(url):
    run(url, "-c", AT_FIRST, url)
    with pytest.raises(StoreError, match="registry upgrade"):
        Registry(url)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:  # as before revisions were written down
        db.execute("DROP TABLE alembic_version")
        db.execute("INSERT INTO releases VALUES ('a', '/r/a', 'in', '{}', 'current', 1)")
        db.execute("INSERT INTO pointers VALUES ('default', 'a', NULL, 1)")
    first = json.loads(run(url, "-m", "infra.registry", "registry", "upgrade", "--json"))
    assert first == {"before": "0001", "after": REVISION, "changed": True}
    again = json.loads(run(url, "-m", "infra.registry", "registry", "upgrade", "--json"))
    assert not again["changed"]
    registry = Registry(url)
    current = registry.current()
    assert current is not None and current.id == "a"
    registry.publish(ReleaseRow("b", "/r/b", "in", {}, Status.FUTURE, 2), why="")
    assert registry.canary("b", 0.1, why="works after the upgrade")


def test_what_happened_is_listed(url):
    registry = Registry(url)
    registry.publish(ReleaseRow("a", "/r/a", "in", {}, Status.FUTURE, 1), why="built")
    registry.promote("a", why="go")
    acts = json.loads(run(url, "-m", "infra.registry", "registry", "acts", "--json"))["acts"]
    assert [(act["act"], act["why"]) for act in acts] == [("promote", "go"), ("publish", "built")]
    assert all(act["who"] and act["at"] for act in acts)
