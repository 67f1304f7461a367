"""`bench online`: what is made before the room takes over, and what is not."""

from __future__ import annotations

import os

import pytest

from infra import bench_online, environments
from infra.errors import LauncherError


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Run it with this machine's programs replaced; what was made, and what the process became."""
    did: list[tuple[str, ...]] = []
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    monkeypatch.setattr(environments, "ensure", lambda _layout, tier: tmp_path / tier / "python")

    def project_python(_layout, name, folder, _size_gb):
        did.append(("project", name, folder.name))
        return tmp_path / name / "python"

    monkeypatch.setattr(environments, "project_python", project_python)

    class Done:
        returncode = 0

    def run(command, **_):
        did.append(("run", *command[3:]))
        return Done()

    monkeypatch.setattr(bench_online.subprocess, "run", run)
    monkeypatch.setattr(bench_online.os, "execve", lambda _path, command, environ: did.append((command, environ)))

    def launch(*args):
        did.clear()
        bench_online.main(list(args))
        *made, (command, environ) = did
        assert command[1:6] == ["-P", "-m", "online", "bench", "online"]
        assert command[6:] == list(args)
        return made, environ

    launch.done = Done
    return launch


def test_without_any_release_one_is_made_without_training(launched, tmp_path):
    made, environ = launched("--json")
    assert made == [("run", "offline", "fixture", "--untrained", str(tmp_path / "bench-untrained"))]
    assert bench_online.RIVALS_PYTHON not in environ
    for folder in ("bench-untrained", "releases"):
        (tmp_path / folder / "one").mkdir(parents=True)
        (tmp_path / folder / "one" / "manifest.json").write_text("{}")
        assert launched("--json")[0] == []
        (tmp_path / folder / "one" / "manifest.json").unlink()


def test_one_without_training_is_made_again_when_the_decoder_has_changed(launched, tmp_path):
    manifest = tmp_path / "bench-untrained" / "one" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    assert launched("--json")[0] == []
    os.utime(manifest, (1, 1))  # older than any file of the project
    assert [did[0] for did in launched("--json")[0]] == ["run"]


@pytest.mark.parametrize("args", [["--release", "x"], ["--release=x"], ["--help"], ["-h", "--rivals"]])
def test_nothing_is_made_when_it_is_named_or_only_help_is_asked_for(launched, args):
    assert launched(*args)[0] == []


def test_the_rivals_environment_is_made_when_it_is_asked_for(launched, tmp_path):
    made, environ = launched("--rivals", "--release", "x")
    assert made == [("project", "rivals", "rivals")]
    assert environ[bench_online.RIVALS_PYTHON] == str(tmp_path / "rivals" / "python")


def test_a_release_that_could_not_be_made_is_said(launched):
    launched.done.returncode = 1
    with pytest.raises(LauncherError, match="no release could be made"):
        launched("--json")


def test_a_project_of_its_own_is_made_again_only_when_its_lock_changes(tmp_path, monkeypatch):
    from infra.paths import Layout

    layout = Layout(tmp_path, tmp_path / "state")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    (folder / "uv.lock").write_text("one")
    synced = []

    def run_uv(command, environ, _layout, name):
        synced.append((name, environ["UV_PROJECT_ENVIRONMENT"], command[2:5]))
        python = layout.env_python(name)
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()

    monkeypatch.setattr(environments, "_run_uv", run_uv)
    monkeypatch.setattr(environments, "find_uv", lambda _layout: "uv")
    for _ in range(2):
        assert environments.project_python(layout, "rivals", folder, 1) == layout.env_python("rivals")
    assert synced == [("rivals", str(layout.envs / "rivals"), ["--frozen", "--project", str(folder)])]
    (folder / "uv.lock").write_text("two")
    environments.project_python(layout, "rivals", folder, 1)
    assert len(synced) == 2
