"""The SDKs' own tests, as their developers run them, and what may not be in their files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

EDGE = Path(__file__).parent.parent.parent / "edge"
JS, JVM = EDGE / "sdk-js", EDGE / "sdk-jvm"
CHROMIUM = Path("/usr/bin/chromium")
LEAST_NODE, LEAST_JAVA = 20, 15


def run(folder: Path, *command: str) -> str:
    """The output; the whole of it is the failure's message."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def major(*command: str) -> int:
    """The major version that a program tells; 0 when it is absent."""
    if shutil.which(command[0]) is None:
        return 0
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return int((re.search(r"\d+", said.stdout + said.stderr) or ["0"])[0])


def install_chromium() -> None:
    """As root on Debian; elsewhere the browser's tests are left out, and say so."""
    if CHROMIUM.exists() or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    for step in (("update", "-qq"), ("install", "-qq", "-y", "--no-install-recommends", "chromium")):
        subprocess.run(["apt-get", *step], capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(major("node", "--version") < LEAST_NODE, reason=f"needs Node {LEAST_NODE} or newer")
def test_the_javascript_sdk() -> None:
    install_chromium()
    run(JS, "npm", "ci", "--silent")
    said = run(JS, "npm", "test")
    passed, skipped = (int(re.search(rf"^ℹ {word} (\d+)", said, re.MULTILINE)[1]) for word in ("pass", "skipped"))
    assert passed > 100
    assert CHROMIUM.exists() or "no browser at" in said
    assert skipped <= 10


@pytest.mark.slow
@pytest.mark.skipif(major("java", "-version") < LEAST_JAVA, reason=f"needs Java {LEAST_JAVA} or newer for Ed25519")
@pytest.mark.skipif(shutil.which("mvn") is None, reason="needs Maven")
def test_the_jvm_sdk() -> None:
    reports = JVM / "target" / "surefire-reports"
    shutil.rmtree(reports, ignore_errors=True)
    run(JVM, "mvn", "-q", "-B", "test")
    suites = [ElementTree.parse(path).getroot() for path in reports.glob("TEST-*.xml")]
    assert sum(int(suite.get("tests", 0)) for suite in suites) > 100


def test_no_file_names_a_registry() -> None:
    lock = (JS / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "repositor" not in (JVM / "pom.xml").read_text().lower()


def test_the_sdks_have_the_same_calls() -> None:
    """What an app can do on one platform it can do on the other."""
    js = (JS / "src" / "types.ts").read_text().split("export interface Edge {")[1]
    java = (JVM / "src" / "main" / "java" / "beforehand" / "edge" / "Edge.java").read_text()
    calls = {
        "setUser",
        "forget",
        "setConsent",
        "track",
        "warm",
        "prompt",
        "latest",
        "attach",
        "refresh",
        "status",
        "close",
    }
    assert all(re.search(rf"\b{name}[(<]", js) for name in calls)
    assert all(re.search(rf"public .*\b{name}\(", java) for name in calls)
