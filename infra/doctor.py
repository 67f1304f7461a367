"""`./beforehand doctor`: what this machine has, what it lacks, and what mends each lack. It changes nothing."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from infra import environments, jars, system
from infra.paths import Layout
from infra.stack import Stack

# What building every environment takes, and what the whole stack with training takes.
DISK_GB = 12.0
MEMORY_GB = 6.0


@dataclass(frozen=True)
class Finding:
    """One line; `mend` is set where something is amiss, and empty where nothing is."""

    name: str
    ok: bool
    detail: str
    mend: str = ""


def main(args: list[str]) -> int:
    """Exit code 0 also when something is absent: most of it is made when it is first needed."""
    parser = argparse.ArgumentParser(
        prog="./beforehand doctor",
        description="What this machine has and lacks, with the mend for each lack.",
        epilog="example: ./beforehand doctor --json",
    )
    parser.add_argument("--json", action="store_true", help="for a program to read")
    options = parser.parse_args(args)
    findings = list(examine(Layout.current()))
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
        return 0
    for finding in findings:
        mend = f"  ->  {finding.mend}" if finding.mend else ""
        print(f"{'OK' if finding.ok else '–':<3}{finding.name:<22}{finding.detail}{mend}")
    return 0


def examine(layout: Layout) -> Iterator[Finding]:
    """Every finding, in the order in which a first run needs the things."""
    yield Finding("python", True, f"{platform.python_version()} at {sys.executable}")
    yield _uv(layout)
    yield from _java()
    for tier in environments.TIERS:
        state = environments.state(layout, tier)
        fine = state == "present"
        yield Finding(f"environment {tier}", fine, state, "" if fine else f"./beforehand env {tier}")
    for name in jars.JARS:
        state = jars.state(layout, name)
        mends = {"present": "", "no sources": "check the repository out completely"}
        yield Finding(f"jars {name}", state == "present", state, mends.get(state, "made at first use"))
    yield from _services(layout)
    yield from _state(layout)
    yield from _room(layout)


def _uv(layout: Layout) -> Finding:
    own = layout.tools / "uv" / "bin" / "uv"
    found = shutil.which("uv") or (str(own) if own.exists() else None)
    return Finding("uv", bool(found), found or "absent", "" if found else "installed at first use")


def _java() -> Iterator[Finding]:
    found = system.find_java()
    detail = f"{found.version} at {found.home}" if found else f"no Java {system.OLDEST_JAVA} or newer"
    by_root = "installed at first use" if os.geteuid() == 0 and shutil.which("apt-get") else ""
    mend = by_root or "apt-get install openjdk-17-jdk-headless"
    yield Finding("java", bool(found), detail, "" if found else mend)
    mvn = shutil.which("mvn")
    yield Finding("maven", bool(mvn), mvn or "absent", "" if mvn else by_root or "apt-get install maven")


def _services(layout: Layout) -> Iterator[Finding]:
    for one in Stack(layout.state).status():
        detail = f"{one.state} {one.address or ''} {one.detail or ''}".strip()
        yield Finding(f"service {one.name}", one.running, detail, "" if one.running else f"./beforehand up {one.name}")


def _state(layout: Layout) -> Iterator[Finding]:
    releases = [path for path in _folders(layout.state / "releases") if (path / "manifest.json").exists()]
    yield Finding(
        "releases", bool(releases), f"{len(releases)} in {layout.state / 'releases'}",
        "" if releases else "./beforehand demo, or ./beforehand build",
    )  # fmt: skip
    registry = layout.state / "registry.db"
    there = registry.exists()
    detail = str(registry) if there else "absent"
    yield Finding("registry", there, detail, "" if there else "made with the first release")


def _folders(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.is_dir()] if path.is_dir() else []


def _room(layout: Layout) -> Iterator[Finding]:
    free = shutil.disk_usage(layout.root).free / 1e9
    enough = free >= DISK_GB
    mend = "" if enough else f"all environments together need about {DISK_GB:g} GB"
    yield Finding("free disk", enough, f"{free:.1f} GB", mend)
    memory = _available_memory_gb()
    if memory is not None:
        enough = memory >= MEMORY_GB
        mend = "" if enough else f"training beside the stack needs about {MEMORY_GB:g} GB"
        yield Finding("available memory", enough, f"{memory:.1f} GB", mend)


def _available_memory_gb() -> float | None:
    try:
        text = Path("/proc/meminfo").read_text()
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1e6
    return None
