"""Environments are made from the lock, once, and again when the lock changes."""

import json
import os
import subprocess
import sys
import tomllib

import pytest

from infra import environments
from infra.errors import LauncherError
from infra.paths import ROOT, Layout


def test_an_unchanged_lock_means_no_work(checkout, calls):
    environments.ensure(checkout, "nearline")
    environments.ensure(checkout, "nearline")
    assert len(calls()) == 1
    assert "--frozen" in calls()[0] and "--extra nearline" in calls()[0]


def test_a_changed_lock_means_a_sync(checkout, calls):
    environments.ensure(checkout, "edge")
    lock = checkout.root / "uv.lock"
    lock.write_text(lock.read_text() + "\n# changed\n")
    assert environments.state(checkout, "edge") == "out of date"
    environments.ensure(checkout, "edge")
    assert len(calls()) == 2
    assert environments.state(checkout, "edge") == "present"


def test_a_changed_tool_setting_means_no_sync(checkout, calls):
    """Only the dependency tables count: a new lint rule must not rebuild seven environments."""
    environments.ensure(checkout, "edge")
    project = checkout.root / "pyproject.toml"
    project.write_text(project.read_text() + '\n[tool.something]\nelse = "here"\n')
    assert environments.state(checkout, "edge") == "present"


def test_a_failed_sync_leaves_no_promise(checkout, monkeypatch):
    monkeypatch.setenv("FAKE_UV_FAILS", "1")
    with pytest.raises(LauncherError, match="no such package") as caught:
        environments.ensure(checkout, "online")
    assert "./beforehand env online" in caught.value.mend
    assert environments.state(checkout, "online") == "absent"


def test_two_launchers_at_once_sync_once(checkout, calls, monkeypatch):
    monkeypatch.setenv("FAKE_UV_SLEEP", "0.5")
    code = (
        "import sys; from pathlib import Path; from infra.paths import Layout; from infra import environments; "
        "root = Path(sys.argv[1]); environments.ensure(Layout(root, root), 'dags')"
    )
    command = [sys.executable, "-c", code, str(checkout.root)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    children = [subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [child.wait(timeout=30) for child in children] == [0, 0]
    assert len(calls()) == 1


def test_an_unknown_tier_is_refused_by_name(checkout):
    with pytest.raises(LauncherError, match="'nealrine'"):
        environments.ensure(checkout, "nealrine")


def test_too_little_disk_is_told_before_the_download(checkout, calls, monkeypatch):
    monkeypatch.setitem(environments.SIZE_GB, "offline", 1e9)
    with pytest.raises(LauncherError, match="are free"):
        environments.ensure(checkout, "offline")
    assert not calls()


def test_an_old_uv_on_path_is_not_used(checkout, monkeypatch, tmp_path):
    old = tmp_path / "bin" / "uv"
    old.write_text("#!/bin/sh\necho uv 0.2.0\n")
    own = checkout.tools / "uv" / "bin" / "uv"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\necho uv 0.99.0\n")
    own.chmod(0o755)
    assert environments.find_uv(checkout) == own


def test_streaming_shares_its_environment_with_no_other_tier():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert [tier for tier, extras in environments.EXTRAS.items() if "streaming" in extras] == ["streaming"]
    conflicts = {frozenset(one["extra"] for one in pair) for pair in project["tool"]["uv"]["conflicts"]}
    others = set(project["project"]["optional-dependencies"]) - {"streaming"}
    assert conflicts == {frozenset({"streaming", other}) for other in others}


LIST = "import json, importlib.metadata as m; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"


def installed(tier: str) -> dict[str, str]:
    """Every distribution of a tier's real environment."""
    layout = Layout.current()
    if environments.state(layout, tier) != "present":
        pytest.skip(f"the {tier} environment is {environments.state(layout, tier)}: ./beforehand env {tier}")
    done = subprocess.run([layout.env_python(tier), "-c", LIST], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def test_streaming_keeps_flinks_pins():
    have = installed("streaming")
    assert have["apache-flink"] == "2.3.0"
    assert version(have["numpy"]) < (2, 2)
    assert version(have["pyarrow"])[0] == 16
    assert version(have["redis"])[0] == 5
    assert have["apache-beam"].startswith("2.61.")


@pytest.mark.parametrize("tier", [tier for tier in environments.TIERS if tier != "streaming"])
def test_flinks_old_pins_do_not_leak(tier):
    """uv keeps one version for all tiers where it can; the floors in pyproject.toml prevent that."""
    have = installed(tier)
    floors = {"numpy": (2, 4), "pyarrow": (25, 0), "redis": (8, 1), "grpcio": (1, 80)}
    low = {name: have[name] for name, floor in floors.items() if name in have and version(have[name]) < floor}
    assert not low
    if tier == "offline":
        assert {"numpy", "pyarrow", "grpcio"} <= set(have)
        assert version(have["apache-beam"]) == (2, 77)


@pytest.mark.parametrize("tier", ["online", "edge", "nearline"])
def test_the_serving_tiers_stay_light(tier):
    heavy = {"torch", "apache-flink", "apache-beam", "apache-airflow", "apache-airflow-core", "transformers", "pandas"}
    assert not heavy & set(installed(tier))


def test_a_moved_checkout_gets_new_environments(checkout, calls):
    """The scripts in bin/ name the folder where they were made."""
    environments.ensure(checkout, "edge")
    (checkout.envs / "edge" / "old-script").write_text("#!/elsewhere/bin/python\n")
    moved = Layout(root=checkout.root.rename(checkout.root.parent / "moved"), state=checkout.state)
    assert environments.state(moved, "edge") == "out of date"
    environments.ensure(moved, "edge")
    assert environments.state(moved, "edge") == "present"
    assert not (moved.envs / "edge" / "old-script").exists()


def test_another_patch_version_of_python_does_not_build_an_environment_anew(monkeypatch):
    layout = Layout.current()
    stamps = set()
    for version in (("3", "11", "2"), ("3", "11", "7")):
        monkeypatch.setattr("platform.python_version_tuple", lambda version=version: version)
        stamps.add(environments.stamp(layout, "offline"))
    assert len(stamps) == 1
    monkeypatch.setattr("platform.python_version_tuple", lambda: ("3", "12", "1"))
    assert environments.stamp(layout, "offline") not in stamps
