"""``./beforehand build``: from a data set to a promoted release."""

from __future__ import annotations

import argparse
import os
import time

from offline.build import pipelines
from offline.build.stage import Build, read_record
from offline.build.stages import NAMES, digest, explain, run_build
from schemas import cli
from schemas.errors import DataError
from schemas.locations import state_dir
from schemas.plan import load_plan


def build_release(args: argparse.Namespace) -> cli.Result:
    """Run the verb: one stage or all."""
    build = Build(args.data, load_plan(overrides=args.set), force=args.force)
    build.threads, build.processes, build.device = args.threads, args.processes, args.device
    _check_data(build)
    pipelines.use(args.runner, args.beam_option)
    if args.explain:
        return _explain(build)
    begun = time.monotonic()
    before = {stage: record.hash for stage in NAMES if (record := read_record(build, stage))}
    records = run_build(build, args.stage, args.expect)
    changed = [stage for stage, record in records.items() if args.force or before.get(stage) != record.hash]
    seconds = round(time.monotonic() - begun, 2)
    published, judged = records.get("publish"), records.get("evaluate")
    cli.say(f"{len(changed)} of {len(records)} stages ran, {seconds} s")
    return {
        "stages": {stage: {"hash": r.hash, "seconds": r.seconds, **r.result} for stage, r in records.items()},
        "changed": changed,
        "release": published.result["release"] if published else None,
        "metrics": judged.result["metrics"] if judged else {},
        "seconds": seconds,
    }


def _explain(build: Build) -> cli.Result:
    """What would run and why; the same judge decides when it runs."""
    found = explain(build)
    for stage, one in found.items():
        cli.say(f"{stage:<9} {'runs: ' + ', '.join(one.why) if one.why else 'unchanged'}")
    return {
        "explain": [
            {"stage": stage, "hash": one.hash, "runs": bool(one.why), "why": list(one.why)}
            for stage, one in found.items()
        ],
        "digest": digest(found),
        "data": build.name,
    }


def _check_data(build: Build) -> None:
    if not (build.data / "dataset.json").is_file():
        there = sorted(path.parent.name for path in (state_dir() / "data").glob("*/dataset.json"))
        raise DataError(
            "no such data set",
            where=str(build.data),
            value=build.name,
            mend=f"There are: {', '.join(there) or 'none'}. Make one with `./beforehand data`.",
        )


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    cores = len(os.sched_getaffinity(0))
    add = parser.add_argument
    add("stage", nargs="?", default="all", choices=["all", *NAMES], help="one stage only (default: all)")
    add("--data", default="journey", metavar="NAME", help="the data set (default: journey)")
    add("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="another value than the plan's")
    add("--force", action="store_true", help="run the stages though nothing changed")
    add("--runner", metavar="NAME", help="of the Beam pipelines (default: in this process)")
    add("--beam-option", action="append", default=[], metavar="--KEY=VALUE", help="of that runner; may come again")
    add("--explain", action="store_true", help="say what would run and why, and do nothing")
    add("--expect", default="", metavar="DIGEST", help="do nothing unless --explain would still say the same")
    add("--threads", type=int, default=cores, help=f"of torch and onnxruntime (default: the cores allowed, {cores})")
    add("--processes", type=int, default=1, metavar="N", help="that train together, by torchrun (default: 1)")
    add("--device", default="cpu", help="to train on, as torch names it: cpu, cuda (default: cpu)")
