"""Jars are built once per change of their sources."""

import os
from dataclasses import replace

import pytest

from infra import jars
from infra.errors import LauncherError
from infra.paths import Layout

FAKE_MAVEN = """#!/bin/sh
echo called >> "{calls}"
if [ -n "${{FAKE_MAVEN_FAILS:-}}" ]; then echo "cannot find symbol"; exit 1; fi
mkdir -p "{made}" && echo jar > "{made}/some.jar"
"""


@pytest.fixture
def layout(tmp_path, monkeypatch):
    project = tmp_path / "streaming" / "java"
    (project / "src").mkdir(parents=True)
    (project / "pom.xml").write_text("<project/>")
    (project / "src" / "A.java").write_text("class A {}")
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(FAKE_MAVEN.format(calls=tmp_path / "calls", made=project / "target" / "jars"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(jars.system, "maven", lambda: program)
    return replace(Layout.current(), root=tmp_path)


def calls(layout):
    return len((layout.root / "calls").read_text().splitlines())


def test_built_once_and_again_when_a_source_changes(layout):
    assert jars.state(layout, "flink") == "absent"
    folder = jars.ensure(layout, "flink")
    jars.ensure(layout, "flink")
    assert [path.name for path in folder.glob("*.jar")] == ["some.jar"]
    assert calls(layout) == 1
    (layout.root / "streaming/java/src/A.java").write_text("class A { int x; }")
    assert jars.state(layout, "flink") == "out of date"
    jars.ensure(layout, "flink")
    assert calls(layout) == 2


def test_a_failed_build_shows_what_maven_said(layout, monkeypatch, capsys):
    monkeypatch.setenv("FAKE_MAVEN_FAILS", "1")
    with pytest.raises(LauncherError, match="Maven could not make the flink jars"):
        jars.ensure(layout, "flink")
    assert "cannot find symbol" in capsys.readouterr().err
    assert jars.state(layout, "flink") == "absent"


def test_a_checkout_without_the_project_says_so(layout):
    (layout.root / "streaming/java/pom.xml").unlink()
    assert jars.state(layout, "flink") == "no sources"
    with pytest.raises(LauncherError, match="is missing"):
        jars.ensure(layout, "flink")
