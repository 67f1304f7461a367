"""What the tests of all rooms cover, in one line per room; the lines that are missed go to a file."""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from pathlib import Path

from infra.paths import Layout
from infra.room_tests import results_folder


def coverage_summary(layout: Layout) -> None:
    """Prints the share per room; says nothing when no room was measured."""
    folder = results_folder(layout)
    parts = sorted(folder.glob("*/coverage.data"))
    if not parts:
        return
    python = layout.env_python("dev")
    environ = {**os.environ, "COVERAGE_FILE": str(folder / "coverage.combined")}
    _coverage(python, layout, environ, ["combine", "--keep", "--quiet", *map(str, parts)])
    _coverage(python, layout, environ, ["json", "--quiet", "-o", str(folder / "coverage.json")])
    report = _coverage(python, layout, environ, ["report", "--skip-covered", "--show-missing"])
    (folder / "coverage.txt").write_text(report)
    _print_rooms(json.loads((folder / "coverage.json").read_text())["files"])
    print(f"  missed lines: {(folder / 'coverage.txt').relative_to(layout.root)}")


def _coverage(python: Path, layout: Layout, environ: dict[str, str], args: list[str]) -> str:
    done = subprocess.run(
        [str(python), "-m", "coverage", *args],
        cwd=layout.root,
        env=environ,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        print(done.stdout.rstrip())
    return done.stdout


def _print_rooms(files: dict[str, dict]) -> None:
    covered: dict[str, int] = defaultdict(int)
    lines: dict[str, int] = defaultdict(int)
    for name, record in files.items():
        room = Path(name).parts[0]
        covered[room] += record["summary"]["covered_lines"]
        lines[room] += record["summary"]["num_statements"]
    print("\ncoverage by each room's own tests (lines):")
    for room, num_lines in lines.items():
        if num_lines:
            print(f"  {room:<10} {100 * covered[room] / num_lines:5.1f} % of {num_lines}")
