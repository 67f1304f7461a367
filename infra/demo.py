"""`./beforehand demo`: the whole chain, from raw data to answered requests, through the same verbs a person types.

Everything it starts is stopped at the end, or at Ctrl-C; `--keep` leaves the services up.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra import environments, jars, processes
from infra.demo_result import summarise
from infra.errors import LauncherError
from infra.explore import answers
from infra.paths import Layout
from infra.report import as_text, render
from infra.shop import open_shop
from infra.stack import ALL, Stack
from infra.verb_runner import command, run_verb

TIERS = ("offline", "streaming", "nearline", "edge", "online")
SMALL_SETTINGS = ("model.epochs=3",)
REPLAY_S = {True: 15, False: 45}
"""Seconds over which the held-back events are replayed: small demo, full demo."""


@dataclass
class Demo:
    """One run: what was asked, where things are, and what each step answered."""

    options: argparse.Namespace
    layout: Layout
    stack: Stack
    replies: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The data set's name: one folder of data and one of work each."""
        base = "files" if self.options.catalogue else self.options.data[0]
        return base if not self.options.small else f"{base}-small"

    @property
    def data(self) -> Path:
        return self.layout.state / "data" / self.name


def main(args: list[str]) -> int:
    """Exit code 0 when every step ran; the steps' own errors are told on stderr."""
    options = _parse(args)
    layout = Layout.current()
    demo = Demo(options, layout, Stack(layout.state))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the `finally` below still runs
    begun = time.monotonic()
    try:
        for number, (title, run) in enumerate(STEPS, start=1):
            with _step(demo, f"{number}/{len(STEPS)} {title}"):
                run(demo)
    finally:
        if not (options.keep or options.shop):
            stop_everything(demo.layout, demo.stack)
    result = summarise(demo.replies, demo.steps, round(time.monotonic() - begun, 1))
    if options.shop:
        release, targets = demo.replies["build"]["release"], demo.data / "targets.jsonl"
        result["shop"] = open_shop(layout, demo.stack, release, targets)
    _report(demo, result)
    return 0


def _setup(demo: Demo) -> None:
    for tier in TIERS:
        environments.ensure(demo.layout, tier)
    for group in ("kafka", "flink"):
        jars.ensure(demo.layout, group)
    if stop_everything(demo.layout, demo.stack):
        _say("stopped what an earlier run had left up")
    for service in ALL:  # the demo shows an empty system filling up
        shutil.rmtree(demo.layout.run / service, ignore_errors=True)


def _data(demo: Demo) -> None:
    options = demo.options
    words: list[str | Path] = ["data", "--name", demo.name, *(["--small"] if options.small else [])]
    if options.data[0] == "online-retail":
        words += ["--source", *options.data[:1], "--file", *options.data[1:]]
    for flag in ("catalogue", "events", "profiles"):
        if getattr(options, flag):
            words += [f"--{flag}", getattr(options, flag)]
    demo.replies["data"] = run_verb(*words)


def _offline(demo: Demo) -> None:
    # The services start beside the build: they need no release, and a JVM's start is mostly waiting.
    with ThreadPoolExecutor(1) as beside:
        started = beside.submit(_start_services, demo)
        demo.replies["build"] = _build(demo)
        demo.replies["deploy"] = started.result()


def _start_services(demo: Demo) -> dict[str, Any]:
    demo.stack.up()
    return run_verb("stream", "deploy", quiet=True)


def _build(demo: Demo) -> dict[str, Any]:
    settings = [*(SMALL_SETTINGS if demo.options.small else ()), *demo.options.set]
    words = [word for setting in settings for word in ("--set", setting)]
    return run_verb("build", "--data", demo.name, *words)


def _nearline(demo: Demo) -> None:
    _start(demo, "worker", "worker")
    held_back = sum(1 for _ in (demo.data / "replay.jsonl").open())
    rate = max(50, round(held_back / REPLAY_S[demo.options.small]))
    demo.replies["replay"] = run_verb(
        "replay", demo.data / "replay.jsonl", "--bootstrap", demo.data / "bootstrap.jsonl",
        "--rate", str(rate), "--measure", "100", "--wait-idle",
    )  # fmt: skip


def _edge(demo: Demo) -> None:
    demo.replies["edge"] = run_verb(
        "edge", "prompts", "--targets", demo.data / "targets.jsonl", "--out", demo.data / "prompts.jsonl",
        "--release", demo.replies["build"]["release"],
    )  # fmt: skip


def _online(demo: Demo) -> None:
    serve = _start(demo, "online", "serve")
    processes.wait_until([serve], lambda: answers(demo.stack), timeout_s=60)
    demo.replies["ask"] = run_verb(
        "ask", "--targets", demo.data / "targets.jsonl", "--prompts", demo.data / "prompts.jsonl",
        "-k", "50", "--warm", "50", "--whole",
    )  # fmt: skip
    user = demo.replies["ask"]["example"]["user_id"]
    demo.replies["explain"] = run_verb("explain", user, quiet=True)


STEPS: list[tuple[str, Callable[[Demo], None]]] = [
    ("Set up", _setup),
    ("Data", _data),
    ("Offline: encode, codes, train, export, release", _offline),
    ("Near-line: Kafka → Flink → worker → Redis", _nearline),
    ("Edge: prompt embeddings", _edge),
    ("Online: requests over HTTP", _online),
]


def stop_everything(layout: Layout, stack: Stack) -> bool:
    """Stop the service, the worker and the stack of this state folder; True when anything ran."""
    stopped = [processes.stop(layout.run / name) for name in ("online", "worker")]
    return any([*stopped, *stack.down()])


def _start(demo: Demo, name: str, *words: str) -> processes.Process:
    return processes.start(name, command(words), demo.layout.run / name)


@contextmanager
def _step(demo: Demo, title: str) -> Iterator[None]:
    _say(f"── {title}")
    begun = time.monotonic()
    yield
    took = time.monotonic() - begun
    demo.steps.append({"step": title, "seconds": round(took, 1)})
    _say(f"   {took:.1f} s")


def _report(demo: Demo, result: dict[str, Any]) -> None:
    folder = demo.layout.state / "report"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "demo.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "demo.html").write_text(render(result))
    _say(as_text(result))
    _say(f"\nthe page with plots: {folder / 'demo.html'}")
    _say(f"look on: ./beforehand explain {result['example']['user_id']}")
    if "shop" in result:
        _say(f"the shop: {result['shop']} (./beforehand down stops it)")
    if demo.options.json:
        print(json.dumps(result))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parse(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./beforehand demo",
        description="Run the whole chain: data, offline build, near-line stream, edge prompts, requests, report. "
        "It stops this checkout's local services first and clears their data.",
        epilog="examples:\n  ./beforehand demo --small\n  ./beforehand demo --small --shop\n"
        "  ./beforehand demo --data online-retail invoices.parquet\n"
        "  ./beforehand demo --catalogue items.csv --events events.parquet",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--small", action="store_true", help="a sample: under 3 minutes on 2 cores, once set up")
    parser.add_argument(
        "--data",
        nargs="+",
        default=["journey"],
        metavar=("NAME", "FILE"),
        help="journey (the default), or online-retail and its invoices (Parquet or CSV)",
    )
    parser.add_argument("--catalogue", type=Path, help="your own items (`./beforehand data --help` has the columns)")
    parser.add_argument("--events", type=Path, help="your own events, with --catalogue")
    parser.add_argument("--profiles", type=Path, help="your own user profiles, with --catalogue")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change the plan")
    parser.add_argument("--keep", action="store_true", help="leave the services up (./beforehand down stops them)")
    parser.add_argument("--shop", action="store_true", help="then open a shop in the browser; implies --keep")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object, last, on stdout")
    options = parser.parse_args(args)
    if [options.data[0], len(options.data)] not in (["journey", 1], ["online-retail", 2]):
        raise LauncherError(
            f"--data {' '.join(options.data)} is no data set", "--data journey, or --data online-retail INVOICES"
        )
    if bool(options.catalogue) != bool(options.events):
        raise LauncherError("--catalogue and --events go together", "./beforehand demo --help")
    return options
