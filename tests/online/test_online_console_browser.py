"""The console in a real browser, against the real service with the fixture release."""

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

import pytest
from online_values import patient_plan

from schemas.locations import ROOT
from schemas.registry import Registry, ReleaseRow, Status

FIXTURES = ROOT / "tests" / "fixtures"
RELEASE = json.loads((FIXTURES / "release" / "manifest.json").read_text())["id"]
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
KEY = "secret"
LACKING = [
    name
    for name, there in {
        "Node": shutil.which("node"),
        CHROMIUM: Path(CHROMIUM).exists(),
        "npm ci in edge/sdk-js": (ROOT / "edge" / "sdk-js" / "node_modules" / "playwright-core").exists(),
    }.items()
    if not there
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(LACKING), reason=f"not here: {', '.join(LACKING)}"),
]


@pytest.fixture
def url(tmp_path: Path, redis_url: str) -> Iterator[str]:
    """The service as a process of its own, with a key."""
    state = tmp_path / "state"
    shutil.copytree(FIXTURES / "release", state / "releases" / RELEASE)
    registry = Registry(f"sqlite:///{state}/registry.db")
    registry.publish(ReleaseRow(RELEASE, RELEASE, "inputs", {}, Status.FUTURE, 1), why="test")
    registry.promote(RELEASE, why="test")
    ready = tmp_path / "ready.json"
    own = {
        "BEFOREHAND_STATE": str(state),
        "BEFOREHAND_PLAN": str(patient_plan(tmp_path)),
        "BEFOREHAND_VERIFY_KEY": str(FIXTURES / "release.pub"),
        "BEFOREHAND_REGISTRY": f"sqlite:///{state}/registry.db",
        "BEFOREHAND_API_KEY": KEY,
    }
    command = [sys.executable, "-m", "online", "serve", "--redis", redis_url, "--ready-file", str(ready)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **own})
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


def test_the_page_shows_what_the_service_tells(url: str) -> None:
    body = json.dumps({"user_id": "u", "k": 3, "budget_ms": 5000}).encode()
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    for _ in range(3):
        urllib.request.urlopen(urllib.request.Request(f"{url}/v1/recall", body, headers)).close()
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("console_browser.mjs"))],
        env={**os.environ, "CONSOLE_URL": f"{url}/console/", "CONSOLE_KEY": KEY},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["faults"] == []
    assert shown["refused"] == "the API key is missing or wrong"
    assert not shown["wide"]
    assert RELEASE in shown["releases"]
    assert "current" in shown["releases"]
    assert "100.0 %" in shown["rungs"]
    assert "ms" in shown["budget"]
    assert shown["explained"].startswith("<b>nobody</b>: bucket")
