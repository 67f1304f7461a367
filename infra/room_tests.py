"""One room's tests, run by pytest in the environment of the room's tier, against a state folder of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infra.paths import Layout
from infra.settings import verb_environment
from infra.stamps import locked

# Folder of tests -> the tier whose environment runs it.
ROOM_TIERS = {
    "schemas": "online",
    "offline": "offline",
    "nearline": "nearline",
    "streaming": "streaming",
    "edge": "edge",
    "online": "online",
    "dags": "dags",
    "infra": "nearline",
    "chain": "nearline",
    "deploy": "dev",
}
# The packages that a room's tests are measured on; chain drives everything through the launcher.
MEASURED = {"infra": ("infra",), "chain": (), "deploy": ()}
TIMEOUT_S = 3600
"""Of a room: it ends what hangs outside of any test. Each test has a limit of its own."""
NO_TESTS = 5
# A test must not reach the developer's own services.
ADDRESSES = ("BEFOREHAND_REDIS", "BEFOREHAND_KAFKA", "BEFOREHAND_FLINK", "BEFOREHAND_ONLINE")


@dataclass(frozen=True)
class RoomResult:
    room: str
    passed: int
    failed: int
    skipped: int
    seconds: float


def rooms_with_tests(layout: Layout) -> list[str]:
    return [room for room in ROOM_TIERS if any((layout.root / "tests" / room).rglob("test_*.py"))]


def results_folder(layout: Layout) -> Path:
    return layout.made / "test"


def run_room_tests(layout: Layout, room: str, pytest_args: Sequence[str], *, fast: bool) -> RoomResult:
    """pytest's own output is shown as it comes (``fast``: at its end, since two rooms run at a time); the counts are
    read from its JUnit file."""
    with locked(layout.made / "locks" / f"test-{room}", f"running tests/{room}"):
        return _run_locked(layout, room, pytest_args, fast=fast)


def _run_locked(layout: Layout, room: str, pytest_args: Sequence[str], *, fast: bool) -> RoomResult:
    folder = results_folder(layout) / room
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.monotonic()
    if not fast:
        print(f"\n== tests/{room} ==", flush=True)
    code = _run_pytest(layout, room, folder, pytest_args, fast=fast)
    passed, failed, skipped = _read_counts(folder / "junit.xml")
    if code not in (0, NO_TESTS) and not failed:
        # pytest itself failed: a collection error outside a test, a crash, a time-out.
        print(f"tests/{room}: pytest ended with exit code {code}", file=sys.stderr)
        failed = 1
    return RoomResult(room, passed, failed, skipped, time.monotonic() - started)


def _run_pytest(layout: Layout, room: str, folder: Path, pytest_args: Sequence[str], *, fast: bool) -> int:
    tier = ROOM_TIERS[room]
    environ = verb_environment(replace(layout, state=folder / "state"), tier)
    environ["BEFOREHAND_STATE"] = str(folder / "state")
    for name in ADDRESSES:
        environ.pop(name, None)
    command = [str(layout.env_python(tier)), "-m", "pytest", f"--junitxml={folder / 'junit.xml'}", "-q"]
    if fast:
        command += ["-m", "not slow"]
    else:
        environ["COVERAGE_FILE"] = str(folder / "coverage.data")
        measured = MEASURED.get(room, (room, "schemas"))
        command += [*(f"--cov={name}" for name in dict.fromkeys(measured)), "--cov-report="]
    own = [arg for arg in pytest_args if not arg.startswith("tests/") or Path(arg).parts[1] == room]
    if not any(arg.startswith("tests/") for arg in own):
        own = [f"tests/{room}", *own]
    try:
        done = subprocess.run(
            [*command, *own],
            cwd=layout.root,
            env=environ,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if fast else None,
            stderr=subprocess.STDOUT if fast else None,
            timeout=TIMEOUT_S,
        )
        if fast:
            print(f"\n== tests/{room} ==\n{done.stdout.decode(errors='replace')}", flush=True)
        return done.returncode
    except subprocess.TimeoutExpired:
        print(f"tests/{room} took longer than {TIMEOUT_S} s and was stopped", file=sys.stderr)
        return 124


def _read_counts(report: Path) -> tuple[int, int, int]:
    """Passed, failed (errors included) and skipped; zeros without a report."""
    try:
        suites = ET.parse(report).getroot().iter("testsuite")  # noqa: S314 - pytest wrote it just now
    except (FileNotFoundError, ET.ParseError):
        return 0, 0, 0
    total = failed = skipped = 0
    for suite in suites:
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return total - failed - skipped, failed, skipped
