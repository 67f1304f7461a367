"""The table of verbs, the help, and what the launcher does with a verb that does not exist."""

import importlib.util
import shutil
import subprocess
import sys

import pytest

from infra import launcher
from infra.environments import EXTRAS
from infra.paths import ROOT
from infra.verbs import GROUPS, VERBS, nearest, overview

LAUNCHER = ROOT / "beforehand"


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_names_a_real_room(name):
    verb = VERBS[name]
    assert verb.tier is None or verb.tier in EXTRAS
    if verb.program:
        return
    module, _, function = verb.module.partition(":")
    package = module.split(".", maxsplit=1)[0]
    assert (ROOT / package / "__init__.py").exists(), f"{name}: there is no room {package}"
    if verb.tier is None and module != "infra.demo":
        assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_told_with_an_example(name):
    verb = VERBS[name]
    assert verb.group in GROUPS
    assert verb.example.split()[0] == name
    assert f"./beforehand {verb.example}" in overview()


def test_the_rooms_packages_are_importable_names():
    for verb in VERBS.values():
        if verb.tier and not verb.program:
            assert importlib.util.find_spec(verb.module.split(".", maxsplit=1)[0])


@pytest.mark.parametrize(("typed", "meant"), [("buid", "build"), ("statsu", "status"), ("serv", "serve")])
def test_the_nearest_verb_is_suggested(typed, meant, capsys):
    assert launcher.main([typed]) == 2
    assert f"./beforehand {meant}" in capsys.readouterr().err
    assert nearest(typed) == meant


def test_nonsense_is_pointed_to_the_list(capsys):
    assert launcher.main(["qqqq"]) == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"], ["help"]])
def test_help_needs_nothing(argv, capsys):
    assert launcher.main(argv) == 0
    assert "Near-line" in capsys.readouterr().out


def test_help_of_a_verb_costs_no_download(capsys, monkeypatch):
    monkeypatch.setattr(launcher.environments, "state", lambda layout, tier: "absent")
    assert launcher.main(["build", "--help"]) == 0
    assert "./beforehand env offline" in capsys.readouterr().out


def test_a_verb_that_the_checkout_lacks_is_told(capsys, monkeypatch):
    absent = launcher.Verb(None, "infra.nowhere:main", "try", "", "gone")
    monkeypatch.setitem(launcher.VERBS, "gone", absent)
    assert launcher.main(["gone"]) == 1
    assert "infra.nowhere is missing" in capsys.readouterr().err


def test_it_runs_through_a_link_from_anywhere(tmp_path):
    link = tmp_path / "bf"
    link.symlink_to(LAUNCHER)
    done = subprocess.run([link, "nosuchverb"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no verb 'nosuchverb'" in done.stderr


def test_without_a_python_the_mend_is_named(tmp_path):
    """A PATH with a Python that is too old and the few tools that sh needs."""
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for tool in ("readlink", "dirname", "sh"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    done = subprocess.run(
        [LAUNCHER, "status"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "3.11" in done.stderr and "mend:" in done.stderr


def test_an_interrupt_is_exit_130(monkeypatch, capsys):
    def interrupted(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher, "dispatch", interrupted)
    assert launcher.main(["up"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_ci_runs_what_a_developer_runs():
    script = (ROOT / ".ci" / "run").read_text()
    commands = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert commands[-1] == 'exec ./beforehand test "$@"'
    assert len(commands) == 2, "CI must have no steps of its own"
    readme = ROOT / "README.md"
    if readme.exists():
        assert "./beforehand test" in readme.read_text()


def test_the_launcher_needs_the_standard_library_only():
    """Every verb must start on a machine that has nothing but Python."""
    code = "import infra.launcher, infra.checks, infra.doctor, infra.stack_verbs, infra.env_verb"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
