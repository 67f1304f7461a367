"""A real Airflow: the news of one asset starts the next DAG, up to a release that the running service then serves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow_service import CHECKOUT, Airflow

FIXTURES = CHECKOUT / "tests" / "fixtures"
RELEASE: str = json.loads((FIXTURES / "release" / "manifest.json").read_text())["id"]
CHAIN = ("release", "edge_bundle", "promote")
TIERS = ("edge", "offline", "online")
INHERITED = ("BEFOREHAND_DERIVED", "BEFOREHAND_ROOT", "BEFOREHAND_PLAN", "BEFOREHAND_REGISTRY", "BEFOREHAND_ONLINE")
# The real launcher does everything but the build: its last stage is played by the release that the tests share.
PUBLISH = """#!{python}
import json, os, sys
if sys.argv[1:3] == ["build", "publish"]:
    sys.path.insert(0, {checkout!r})
    from schemas.registry import Registry, ReleaseRow, Status
    new = Registry().publish(ReleaseRow({release!r}, {release!r}, "inputs", {{}}, Status.FUTURE, 1), why="test")
    print(json.dumps(dict(release={release!r}, new=new)))
else:
    os.environ.pop("BEFOREHAND_ROOT", None)
    os.execv({launcher!r}, [{launcher!r}, *sys.argv[1:]])
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A state folder with the fixture release in it, and a checkout whose launcher plays the build."""
    if missing := [tier for tier in TIERS if not (CHECKOUT / ".beforehand" / "envs" / tier).exists()]:
        pytest.skip(f"no environments: ./beforehand env {' '.join(missing)}")
    state, root = tmp_path / "state", tmp_path / "root"
    shutil.copytree(FIXTURES / "release", state / "releases" / RELEASE)
    root.mkdir()
    script = PUBLISH.format(
        python=sys.executable, checkout=str(CHECKOUT), release=RELEASE, launcher=str(CHECKOUT / "beforehand")
    )
    (root / "beforehand").write_text(script)
    (root / "beforehand").chmod(0o755)
    return {
        "BEFOREHAND_STATE": str(state),
        "BEFOREHAND_ROOT": str(root),
        "BEFOREHAND_PLAN": str(CHECKOUT / "plan.toml"),
        "BEFOREHAND_SIGNING_KEY": str(FIXTURES / "release.pem"),
        "BEFOREHAND_VERIFY_KEY": str(FIXTURES / "release.pub"),
        "BEFOREHAND_DAG_PARAMS": json.dumps({"watch_for": "5s", "canary_for": "1s"}),
    }


@pytest.fixture
def service(environ: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The look-up service, before any release is promoted; and Redis behind it."""
    own = {name: value for name, value in os.environ.items() if name not in INHERITED} | environ
    own.pop("BEFOREHAND_ROOT")
    launcher = str(CHECKOUT / "beforehand")
    up = subprocess.run([launcher, "up", "redis", "--json"], env=own, capture_output=True, text=True, check=False)
    assert up.returncode == 0, up.stderr
    ready = tmp_path / "ready.json"
    process = subprocess.Popen([launcher, "serve", "--ready-file", str(ready)], env=own)
    try:
        until = time.monotonic() + 120
        while not ready.exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
        yield json.loads(ready.read_text())["url"]
    finally:
        process.terminate()
        process.wait(30)
        subprocess.run([launcher, "down"], env=own, capture_output=True, check=False)


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def test_one_asset_event_leads_to_the_release_that_the_service_serves(
    environ: dict[str, str], service: str, tmp_path: Path
) -> None:
    assert ask(f"{service}/v1/releases")["current"] is None
    with Airflow(tmp_path / "airflow", environ) as airflow:
        airflow.wait("select 1 from serialized_dag where dag_id = 'promote'", within_s=400)
        for dag in CHAIN:  # the others stay paused: they would begin a build of their own
            airflow.run("dags", "unpause", dag)
        airflow.run("dags", "trigger", "release")
        done = "select state from dag_run where dag_id = ? and state in ('success', 'failed')"
        for dag in CHAIN:
            assert airflow.wait(done, dag, within_s=400) == [("success",)], airflow.logs()
        kinds = dict(airflow.ask("select dag_id, run_type from dag_run where dag_id in ('edge_bundle', 'promote')"))
        assert kinds == {"edge_bundle": "asset_triggered", "promote": "asset_triggered"}
        (extra,) = airflow.ask(
            "select e.extra from asset_event e join asset a on a.id = e.asset_id where a.name = ?", "edge_bundle"
        )[0]
        assert json.loads(str(extra))["release"] == RELEASE
        states = dict(airflow.ask("select task_id, state from task_instance where dag_id = 'promote'"))
    assert states == dict.fromkeys(
        ("verify", "gate", "canary", "watch_canary", "promote", "watch", "rollout"), "success"
    ) | {"undo": "skipped"}
    assert ask(f"{service}/v1/releases")["current"] == RELEASE
    offers = json.loads((Path(environ["BEFOREHAND_STATE"]) / "edge" / "current.json").read_text())
    assert offers
