"""The shop in a real browser, against the real service, with the fixture release: `edge/shop/test`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.paths import Layout
from infra.shop import build_site
from schemas.locations import ROOT

pytestmark = pytest.mark.slow
FIXTURES = ROOT / "tests" / "fixtures"
ONLINE = Layout.current().env_python("online")
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FOR_EVER = "30000d"


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A state folder with a short name: a socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="bh-shop-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def environ(home: Path) -> dict[str, str]:
    """The fixture's release is old: the plan lets it be."""
    plan = (ROOT / "plan.toml").read_text()
    for old in (
        'usable_for = "30d"',
        'usable_for = "60d"',
        'fresh_for = "26h"',
        'fresh_for = "8d"',
        'state_lifetime = "90d"',
    ):
        assert old in plan
        plan = plan.replace(old, f'{old.split(" = ")[0]} = "{FOR_EVER}"')
    for old, new in (('budget = "50ms"', 'budget = "5s"'), ('store_timeout = "15ms"', 'store_timeout = "2s"')):
        assert old in plan
        plan = plan.replace(old, new)  # a busy machine changes no answer
    (home / "plan.toml").write_text(plan)
    own = {
        "BEFOREHAND_STATE": str(home),
        "BEFOREHAND_PLAN": str(home / "plan.toml"),
        "BEFOREHAND_SIGNING_KEY": str(FIXTURES / "release.pem"),
        "BEFOREHAND_VERIFY_KEY": str(FIXTURES / "release.pub"),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")}
    return inherited | own


@pytest.fixture(scope="module")
def bundle(environ: dict[str, str]) -> dict:
    made = edge(environ, "bundle", "--release", str(FIXTURES / "release"), "--graph", "fp32")
    edge(environ, "rollout", "--bundle", made["id"])
    return made


def edge(environ: dict[str, str], *words: str) -> dict:
    command = [sys.executable, "-m", "edge", "edge", *words, "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def shop(home: Path, environ: dict[str, str], bundle: dict) -> Iterator[str]:
    """The page's address."""
    for tool, there in (("node", shutil.which("node")), ("the online tier", ONLINE.exists())):
        if not there:
            pytest.skip(f"no {tool}")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no browser at {CHROMIUM}")
    site = build_site(Layout(ROOT, home), {"keys": [bundle["public_key"]], "users": ["u1", "u2"]})
    ready = home / "ready.json"
    command = [str(ONLINE), str(ROOT / "tests" / "edge" / "shop_service.py"), str(site), str(ready)]
    with (home / "log").open("wb") as log:
        service = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)
    try:
        while not ready.exists():
            assert service.poll() is None, (home / "log").read_text()
            time.sleep(0.05)
        yield f"{json.loads(ready.read_text())['url']}/shop/"
    finally:
        service.terminate()
        service.wait(20)


@pytest.mark.parametrize("name", ["shop", "access"])
def test_in_chromium(shop: str, name: str) -> None:
    command = ["node", "--test", "--test-reporter=tap", str(ROOT / "edge" / "shop" / "test" / f"{name}.test.mjs")]
    environ = os.environ | {"SHOP_URL": shop, "CHROMIUM": CHROMIUM}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "# skipped 0" in done.stdout
