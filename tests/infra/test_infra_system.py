"""Java and Maven: found, installed as root on Debian, or asked for with the exact command."""

import os
from pathlib import Path

import pytest

from infra import system
from infra.errors import LauncherError


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine whose PATH holds an apt-get that installs a JDK and Maven, and nothing else."""
    home = tmp_path / "jdk"
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
        f'case "$*" in *jdk*) /bin/mkdir -p {home}/bin; : > {home}/bin/java; : > {home}/bin/javac;\n'
        f"echo 'JAVA_VERSION=\"17.0.1\"' > {home}/release; /bin/ln -sf {home}/bin/java {apt.parent}/java;\n"
        f"/bin/chmod +x {home}/bin/java {home}/bin/javac;; esac\n"
        f'case "$*" in *maven*) echo > {apt.parent}/mvn; /bin/chmod +x {apt.parent}/mvn;; esac\n'
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(apt.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_root_on_debian_gets_java_and_maven(bare, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert system.find_java() is None
    assert system.maven() == bare / "bin" / "mvn"
    assert system.java().version == 17
    installs = [line for line in (bare / "calls").read_text().splitlines() if line.startswith("install")]
    assert "openjdk-17-jdk-headless" in installs[0] and "maven" in installs[1]


def test_anybody_else_is_told_the_command(bare, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LauncherError, match="is not installed") as caught:
        system.java()
    assert "apt-get install -y openjdk-17-jdk-headless" in caught.value.mend
    assert not (bare / "calls").exists()


def test_another_system_is_told_what_to_install(bare, monkeypatch):
    (bare / "bin" / "apt-get").unlink()
    with pytest.raises(LauncherError) as caught:
        system.java()
    assert "your system's packages" in caught.value.mend


@pytest.mark.parametrize(("said", "usable"), [("1.8.0_292", False), ("11.0.2", False), ("17.0.15", True), ("25", True)])
def test_only_a_new_enough_java_counts(tmp_path, monkeypatch, said, usable):
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch()
    (home / "release").write_text(f'JAVA_VERSION="{said}"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = system.find_java()
    assert (found is not None) == usable
    assert found is None or found.home == home


def test_this_machines_java_is_found():
    found = system.find_java()
    if found is None:
        pytest.skip("no JDK here")
    assert Path(found.program).exists() and found.version >= system.OLDEST_JAVA
