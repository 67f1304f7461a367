"""Making the shop's folder: users, packages, scripts, and what is said when something is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from infra import shop
from infra.errors import LauncherError
from infra.paths import Layout
from schemas.locations import ROOT

TEST = ROOT / "edge" / "shop" / "test" / "changes.test.mjs"
SDK = ROOT / "edge" / "sdk-js"


@pytest.fixture
def packages() -> None:
    """Asked when the test runs, not when it is collected: the SDK's own tests install the packages."""
    if not shutil.which("node") or not (SDK / "node_modules" / "esbuild").exists():
        pytest.skip("no Node, or no npm ci yet (the slow tests do it)")


def test_the_first_users_each_once(tmp_path: Path) -> None:
    targets = tmp_path / "targets.jsonl"
    names = ["b", "a", "b", "c\n", 'd"'] + [str(number) for number in range(50)]
    targets.write_text("\n\n".join(json.dumps({"user_id": name, "items": []}) for name in names) + "\n")
    assert shop.first_users(targets) == ["b", "a", "c\n", 'd"', *map(str, range(shop.NUM_USERS - 4))]
    targets.write_text("")
    assert shop.first_users(targets) == []


def folder_with(tmp_path: Path, *, lock_at: float, installed_at: float | None) -> Path:
    (tmp_path / "package-lock.json").write_text("{}")
    os.utime(tmp_path / "package-lock.json", (lock_at, lock_at))
    if installed_at is not None:
        mark = tmp_path / "node_modules" / ".package-lock.json"
        mark.parent.mkdir()
        mark.write_text("{}")
        os.utime(mark, (installed_at, installed_at))
    return tmp_path


@pytest.mark.parametrize(("installed_at", "runs"), [(None, True), (10.0, True), (20.0, False), (30.0, False)])
def test_packages_are_installed_when_the_lock_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed_at: float | None, runs: bool
) -> None:
    ran = []
    monkeypatch.setattr(shop, "_run", lambda words, folder, limit_s: ran.append((words[1:], folder)))
    monkeypatch.setattr(shop, "_tool", lambda name: name)
    folder = folder_with(tmp_path, lock_at=20.0, installed_at=installed_at)
    shop.install_packages(folder)
    assert ran == ([(["ci"], folder)] if runs else [])


def test_without_node_the_mend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LauncherError, match=r"needs node[\s\S]*install Node\.js"):
        shop.build_site(Layout(ROOT, tmp_path), {})


def test_a_step_that_fails_or_hangs_says_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="no such thing"):
        shop._run(["sh", "-c", "echo no such thing >&2; exit 3"], tmp_path, 10)
    with pytest.raises(LauncherError, match="longer than"):
        shop._run(["sleep", "5"], tmp_path, 0.1)


@pytest.mark.usefixtures("packages")
def test_the_folder_holds_the_page_and_nothing_inline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop, "install_packages", lambda folder: None)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "left-over.js").write_text("")
    site = shop.build_site(Layout(ROOT, tmp_path), {"keys": ["k"], "users": ["u"]})
    names = {path.name for path in site.iterdir()}
    assert {"index.html", "main.js", "worker.js", "shop.css", "ort-wasm-simd-threaded.wasm", "config.json"} <= names
    assert "left-over.js" not in names
    assert json.loads((site / "config.json").read_text()) == {"keys": ["k"], "users": ["u"]}
    page = (site / "index.html").read_text()
    assert "style=" not in page
    assert page.count("<script") == page.count('<script type="module" src="main.js">')


@pytest.mark.usefixtures("packages")
def test_differences_of_lists_against_counting_them() -> None:
    done = subprocess.run(["node", "--test", str(TEST)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.usefixtures("packages")
@pytest.mark.slow
def test_the_types_agree_with_the_sdk() -> None:
    command = [str(SDK / "node_modules" / ".bin" / "tsc"), "-p", str(ROOT / "edge" / "shop")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
