"""The verbs `check` and `test`.

`check` runs the linters and type checkers; `test` runs `check` and then every room's tests in its own environment.
CI runs `test` and nothing else, so what passes here passes there.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from infra import environments, jars
from infra.coverage_summary import coverage_summary
from infra.paths import Layout
from infra.room_tests import ROOM_TIERS, RoomResult, rooms_with_tests, run_room_tests
from infra.stamps import say

FAST_ROOMS = 2


@dataclass(frozen=True)
class Tool:
    """One checker: its command, and the environment whose packages it must see."""

    name: str
    command: tuple[str, ...]
    tier: str = "dev"


@dataclass(frozen=True)
class ToolResult:
    tool: Tool
    code: int | None  # None: left out
    seconds: float
    said: str

    @property
    def ok(self) -> bool:
        return self.code in (0, None)


def check(args: list[str]) -> int:
    """Exit code 0 when every checker is content."""
    parser = argparse.ArgumentParser(
        prog="./beforehand check",
        description="Lint, format, types and import rules, each with its time.",
        epilog="example: ./beforehand check --fix",
    )
    parser.add_argument("--fix", action="store_true", help="first mend what ruff can mend by itself")
    options = parser.parse_args(args)
    layout = Layout.current()
    if options.fix:
        ruff = str(environments.ensure(layout, "dev").parent / "ruff")
        subprocess.run([ruff, "check", "--fix", "--quiet", "."], cwd=layout.root, check=False)
        subprocess.run([ruff, "format", "--quiet", "."], cwd=layout.root, check=False)
    return 0 if run_checks(layout) else 1


def run_checks(layout: Layout) -> bool:
    """Two checkers at a time; a failing one's words are shown in full, a content one's in a line."""
    environments.ensure(layout, "dev")
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(lambda tool: _run_tool(layout, tool), _tools(layout)))
    for result in results:
        word = "left out" if result.code is None else "ok" if result.ok else "FAILED"
        print(f"{word:<9}{result.tool.name:<24}{result.seconds:5.1f} s")
        if result.code != 0:
            print(result.said.rstrip())
    return all(result.ok for result in results)


def _tools(layout: Layout) -> list[Tool]:
    """The slowest first, so that the others fit beside it."""
    scripts = [str(path.relative_to(layout.root)) for path in sorted((layout.root / "infra").glob("*.py"))]
    light = ("schemas", "nearline", "edge", "online", "infra/plan", *scripts)
    heavy = {"offline": ("offline", "infra/report"), "streaming": ("streaming",), "dags": ("dags", "infra/registry")}
    tools = [_types(layout, "dev", light)]
    for tier, folders in heavy.items():
        tools.append(_types(layout, tier, [name for name in folders if (layout.root / name).is_dir()]))
    return [
        *tools,
        Tool("import rules", ("lint-imports", "--no-cache")),
        Tool("ruff check", ("ruff", "check", ".")),
        Tool("ruff format", ("ruff", "format", "--check", ".")),
    ]


def _types(layout: Layout, tier: str, files: Sequence[str]) -> Tool:
    """Each room is checked against the packages that it will run with."""
    python = str(layout.env_python(tier))
    return Tool(f"types ({tier})", ("basedpyright", "--pythonpath", python, *files), tier)


def _run_tool(layout: Layout, tool: Tool) -> ToolResult:
    if environments.state(layout, tool.tier) == "absent":
        said = f"         its environment is absent: ./beforehand env {tool.tier}"
        return ToolResult(tool, None, 0.0, said)
    program = layout.env_python("dev").parent / tool.command[0]
    started = time.monotonic()
    done = subprocess.run(
        [str(program), *tool.command[1:]],
        cwd=layout.root,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ToolResult(tool, done.returncode, time.monotonic() - started, done.stdout)


def test(args: list[str]) -> int:
    """Exit code 0 when everything passed and at least one test ran."""
    options, pytest_args = _test_parser().parse_known_args(args)
    layout = Layout.current()
    rooms, pytest_args = _selected(layout, pytest_args)
    named = any(arg.startswith("tests/") for arg in pytest_args)
    _prepare(layout, rooms, fast=options.fast, whole=not (named or options.fast))
    results: list[RoomResult] = []
    if not (options.no_check or named):
        started = time.monotonic()
        fine = run_checks(layout)
        results.append(RoomResult("check", int(fine), int(not fine), 0, time.monotonic() - started))
    # The slow tests start real services: one room at a time.
    with ThreadPoolExecutor(FAST_ROOMS if options.fast else 1) as pool:
        results += pool.map(lambda room: run_room_tests(layout, room, pytest_args, fast=options.fast), rooms)
    if not options.fast:
        coverage_summary(layout)
    return _verdict(results)


def _test_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./beforehand test",
        description="`check`, then each room's tests in its tier's environment; other arguments go to pytest.",
        epilog="example: ./beforehand test --fast; ./beforehand test tests/online -k deadline -x",
        allow_abbrev=False,
    )
    parser.add_argument("--fast", action="store_true", help="leave out the tests marked slow, and coverage")
    parser.add_argument("--no-check", action="store_true", help="the tests only")
    return parser


def _selected(layout: Layout, pytest_args: list[str]) -> tuple[list[str], list[str]]:
    """Paths under tests/ pick the rooms; without any, all rooms run."""
    rooms = rooms_with_tests(layout)
    paths = [arg for arg in pytest_args if arg.startswith("tests/")]
    if not paths:
        return rooms, pytest_args
    named = {Path(path).parts[1] for path in paths}
    return [room for room in rooms if room in named], pytest_args


def _prepare(layout: Layout, rooms: Sequence[str], *, fast: bool, whole: bool) -> None:
    """Everything that takes long and is no test, up front; a whole run checks every tier's environment."""
    needed = environments.TIERS if whole else dict.fromkeys(["dev", *(ROOM_TIERS[room] for room in rooms)])
    for tier in needed:
        environments.ensure(layout, tier)
    if fast:
        return
    for name in jars.JARS:
        if jars.state(layout, name) == "no sources":
            say(f"no sources for the {name} jars: left out")
        else:
            jars.ensure(layout, name)


def _verdict(results: Sequence[RoomResult]) -> int:
    print(f"\n{'room':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for result in results:
        print(f"{result.room:<12}{result.passed:>8}{result.failed:>8}{result.skipped:>9}{result.seconds:>9.1f}")
    passed, failed, skipped = (
        sum(getattr(result, field) for result in results) for field in ("passed", "failed", "skipped")
    )
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed or not passed else 0
