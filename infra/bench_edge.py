"""`./beforehand bench edge`: the prompt on every runtime of this machine, what a device downloads, what it is worth.

The rooms' own measurements are run and put together: `edge bench` (Python), the JavaScript SDK's (Node, Chromium), the
JVM SDK's, and `python -m offline gain`. All work on one release of Online Retail, built in a state folder of its own at
the first run and then kept; without the invoices on the shared vectors, and then there is no recall gain to tell.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra import environments, system
from infra.bench_edge_text import as_text
from infra.errors import LauncherError
from infra.paths import Layout
from infra.settings import verb_environment
from infra.shop import install_packages
from infra.stamps import say
from infra.verb_runner import run_verb

DATA = "online-retail"
INVOICES = Path("shared", "data", DATA, "invoices.parquet")
SHARD_BYTES = 262_144
OLDEST_NODE = 20
LIMIT_S = 900
Line = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """What is measured: vectors (`edge/vectors/`, or a folder like it), the key they are signed with, the release."""

    vectors: Path
    key: Path
    release: str | None = None
    state: Path | None = None


@dataclass
class Found:
    """A line per runtime, and for what could not be measured the reason."""

    lines: list[Line] = field(default_factory=list)
    gain: Line = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def collect(self, name: str, measure: Callable[[], Iterable[Line]]) -> None:
        """Run one measurement; whatever is not here is named with the reason."""
        say(f"bench edge: {name}")
        try:
            for line in measure():
                if "absent" in line:
                    self.absent[line["runtime"]] = line["absent"]
                else:
                    self.lines.append(line)
        except LauncherError as error:
            self.absent |= dict.fromkeys(name.split(", "), error.what)


def main(args: list[str]) -> int:
    """Exit code 0 when something was measured; what is absent is told."""
    options = _parse(args)
    layout = Layout.current()
    found, load = Found(), round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="beforehand-bench-") as folder:
        subject = _subject(layout, options, Path(folder))
        found.collect("python", lambda: _python(subject, options.runs))
        found.collect("node, chromium", lambda: _node(layout, subject, options.runs))
        found.collect("jvm", lambda: _jvm(layout, subject, options.runs, Path(folder) / "jvm.json"))
        _gain(layout, subject, options, found)
    machine = {"cores": len(os.sched_getaffinity(0)), "load": load}
    result = {"release": subject.release, "machine": machine, **summary(found)}
    print(json.dumps(result) if options.json else as_text(result))
    return 0 if found.lines else 1


def summary(found: Found) -> dict[str, Any]:
    """The figures by name, then by runtime; None for one that is absent."""
    by = {line["runtime"]: line for line in found.lines}
    runtimes = dict.fromkeys((*by, *(name for name in found.absent if name != "recall_gain")))
    every: dict[str, Any] = {key: value for line in found.lines for key, value in line.items()}

    def of(key: str) -> dict[str, Any]:
        return {name: by.get(name, {}).get(key) for name in runtimes}

    differences = of("max_abs_difference")
    return {
        "bundle": every.get("bundle"),
        "graph": every.get("graph"),
        "max_abs_difference": max((value for value in differences.values() if value is not None), default=None),
        "differences": differences,
        "encode_ms": _rounded(of("encode_ms")),
        "cold_start_ms": _rounded(of("cold_start_ms")),
        "main_thread_ms": _rounded(every.get("main_thread_ms")),
        "bundle_bytes": every.get("bundle_bytes"),
        "sdk_gzip_bytes": every.get("sdk_gzip_bytes"),
        "exports": every.get("measured"),
        "recall_gain": found.gain.get("recall_gain"),
        "recall": found.gain or None,
        "absent": found.absent,
    }


def _rounded(ms: Any) -> Any:
    """To the microsecond, however deep."""
    if isinstance(ms, dict):
        return {key: _rounded(value) for key, value in ms.items()}
    return round(ms, 3) if isinstance(ms, float) else ms


def _subject(layout: Layout, options: argparse.Namespace, folder: Path) -> Subject:
    """The release to measure, and vectors of it."""
    state, release = None, options.release
    if release is None and options.invoices.is_file():
        state = layout.state / "bench-edge"
        run_verb("data", "--source", DATA, "--file", options.invoices.resolve(), state=state)
        release = run_verb("build", "--data", DATA, state=state)["release"]
    if release is None:
        return Subject(layout.root / "edge" / "vectors", layout.root / "tests" / "fixtures" / "release.pub")
    out = folder / "vectors"
    words: tuple[str | Path, ...] = ("edge", "vectors", "--release", release, "--shard-bytes", str(SHARD_BYTES))
    run_verb(*words, "--out", out, state=state)
    keys = (state or layout.state) / "keys" / "release.pub"
    return Subject(out, Path(os.environ.get("BEFOREHAND_VERIFY_KEY", keys)), release, state)


def _python(subject: Subject, runs: int) -> Iterable[Line]:
    words: tuple[str | Path, ...] = ("edge", "bench", "--vectors", subject.vectors, "--key", subject.key)
    yield run_verb(*words, "--runs", str(runs), quiet=True)


def _node(layout: Layout, subject: Subject, runs: int) -> Iterable[Line]:
    if _major("node") < OLDEST_NODE:
        raise LauncherError(f"needs Node.js {OLDEST_NODE} or newer", "install it")
    folder = layout.root / "edge" / "sdk-js"
    install_packages(folder)
    settings = {"BEFOREHAND_VECTORS": str(subject.vectors), "BEFOREHAND_RUNS": str(runs)}
    said = _run(["npm", "run", "--silent", "bench"], folder, settings)
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def _jvm(layout: Layout, subject: Subject, runs: int, out: Path) -> Iterable[Line]:
    if shutil.which("mvn") is None or system.find_java() is None:
        raise LauncherError(f"needs Maven and Java {system.OLDEST_JAVA} or newer", "install them")
    settings = [f"-Dvectors={subject.vectors}", f"-Dbench.out={out}", f"-Dbench.runs={runs}"]
    _run(["mvn", "-q", "-B", "test", "-Dtest=BenchRun", *settings], layout.root / "edge" / "sdk-jvm")
    return [json.loads(out.read_text())]


def _gain(layout: Layout, subject: Subject, options: argparse.Namespace, found: Found) -> None:
    if subject.release is None or not options.invoices.is_file():
        found.absent["recall_gain"] = "no invoices.parquet of Online Retail: give it with --invoices FILE"
        return
    say("bench edge: recall gain")
    python = environments.ensure(layout, "offline")
    words = ["gain", "--release", subject.release, "--invoices", options.invoices.resolve(), "--key", subject.key]
    state = {"BEFOREHAND_STATE": str(subject.state or layout.state)}
    try:
        said = _run(
            [python, "-P", "-m", "offline", *words, "--spacing", options.spacing, "--json"],
            layout.root,
            verb_environment(layout, "offline") | state,
        )
        found.gain = json.loads(said.splitlines()[-1])
    except LauncherError as error:
        found.absent["recall_gain"] = error.what


def _run(words: list[Any], folder: Path, settings: dict[str, str] | None = None) -> str:
    """Its stdout. Raises LauncherError with the end of what it said."""
    command = [str(word) for word in words]
    environ = {**os.environ, **(settings or {})}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise LauncherError(f"`{' '.join(command)}` failed: {said}", f"run it by itself in {folder}")
    return done.stdout


def _major(program: str) -> int:
    """Its major version; 0 when it is not here."""
    if shutil.which(program) is None:
        return 0
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+", said)
    return int(number.group()) if number else 0


def _parse(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="beforehand bench edge",
        description="Measure the prompt on the device: time, size, parity, and what it adds to recall.",
        epilog="example:\n  ./beforehand bench edge --invoices invoices.parquet --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--json", action="store_true", help="print one JSON object with the result on stdout")
    add("--release", metavar="ID|FOLDER", help="measure this one (default: one of Online Retail, built for it)")
    beside = Layout.current().root.parent / INVOICES
    add("--invoices", type=Path, default=beside, metavar="FILE", help=f"of Online Retail (default: ../{INVOICES})")
    add("--spacing", default="5", metavar="S", help="seconds between a basket's lines in the replay (default 5)")
    add("--runs", type=int, default=500, help="embeddings to time on each runtime (default 500)")
    options = parser.parse_args(args)
    if options.runs < 1:
        print("beforehand: --runs must be 1 or more", file=sys.stderr)
        sys.exit(2)
    return options
