"""``./beforehand bench quality``: the generator beside other methods, by the public protocols."""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import platform
import shutil
import statistics
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.table import Table

from offline.metrics import quality
from offline.quality import methods
from offline.quality.methods import MODES, SEEDED, Found, Run
from offline.quality.protocol import Protocol, leave_one_out
from offline.quality.shop import online_retail
from schemas import cli
from schemas.errors import DataError
from schemas.locations import ROOT, state_dir
from schemas.plan import load_plan

DATA = ("beauty", "scientific", "online-retail")
RESULTS = ROOT / "benchmarks" / "results"
RECIPE = (
    "model.epochs=14",
    "model.batch_size=768",
    "model.negatives=16384",
    "index.neighbours=100",
    "nearline.neighbours=100",
)
"""What the bench asks of the plan beside its own values."""
ABOUT = """
Every user's last item is the test, the one before it validation; all items are ranked. What a method can choose it
chooses on validation; the test is asked once. The whole takes an hour or two on two cores and goes on where it was
interrupted; --stored prints the newest result without training."""
SHOWN = ("recall_at_5", "recall_at_10", "ndcg_at_5", "ndcg_at_10")


def bench(args: argparse.Namespace) -> cli.Result:
    """Run the verb."""
    if args.stored:
        return _stored(args.data)
    work = state_dir() / "quality" / args.data
    overrides = [*RECIPE, *args.set]
    protocol = _protocol(args, load_plan(overrides=overrides).model.window)
    runs: dict[str, list[dict[str, Any]]] = {}
    for name in args.method or list(methods.METHODS):
        for seed in range(1, (args.seeds if name in SEEDED else 1) + 1):
            plan = load_plan(overrides=[*overrides, f"model.seed={seed}"])
            for method, one in _once(name, Run(protocol, plan, work / name / str(seed), args.threads)).items():
                runs.setdefault(method, []).append(one)
    result = _summary(args, protocol, overrides, runs)
    path = RESULTS / f"{datetime.date.today().isoformat()}-quality-{args.data}.json"
    if not args.method:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
        cli.say(f"written to {path.relative_to(ROOT)}")
    _show(result)
    return result


def _protocol(args: argparse.Namespace, window: int) -> Protocol:
    folder = Path(args.folder) if args.folder else ROOT.parent / "shared" / "data" / args.data
    if not folder.is_dir():
        raise DataError(
            "no such folder", where="--folder", value=str(folder), mend="Name the folder that holds the data set."
        )
    return online_retail(folder, window) if args.data == "online-retail" else leave_one_out(folder, window)


def _once(name: str, run: Run) -> dict[str, dict[str, Any]]:
    """One run's figures. A run that was interrupted goes on from its folder, unless other settings were asked for."""
    plan, data = run.plan, _digest(run.protocol)
    settings = msgspec.json.encode([plan.index, plan.model, plan.nearline.neighbours, data], order="sorted")
    asked, done = run.folder / "settings.json", run.folder / "figures.json"
    if not asked.exists() or asked.read_bytes() != settings:
        shutil.rmtree(run.folder, ignore_errors=True)
        run.folder.mkdir(parents=True)
        asked.write_bytes(settings)
    if done.exists():
        cli.say(f"✓ {name}, seed {run.plan.model.seed}: from before")
        return msgspec.json.decode(done.read_bytes())
    with cli.step(f"{name}, seed {run.plan.model.seed}") as made:
        figures = {method: _figures(run, found) for method, found in methods.METHODS[name](run).items()}
        made(", ".join(f"{who} {one[methods.REMOVED]['recall_at_10']:.4f}" for who, one in figures.items()))
    draft = done.with_name(f".{done.name}")
    draft.write_bytes(msgspec.json.encode(figures))
    draft.replace(done)
    return figures


def _digest(protocol: Protocol) -> str:
    """Of what is learnt from: another folder may be named, or the data may have changed."""
    made = hashlib.sha256("\0".join(protocol.texts).encode())
    for numbers in (protocol.train.start, protocol.train.item, np.concatenate([case.target for case in protocol.test])):
        made.update(np.ascontiguousarray(numbers, np.int64).tobytes())
    return made.hexdigest()


def _figures(run: Run, found: Found) -> dict[str, Any]:
    """Metrics by mode, also of the cases whose item was never trained on."""
    cases = run.protocol.test
    trained = run.protocol.bought > 0
    out: dict[str, Any] = {"train_cpu_s": round(found.train_cpu_s, 1), "train_minutes": round(found.train_minutes, 2)}
    for mode, seen in MODES.items():
        wanted = [case.target if seen else case.target[~np.isin(case.target, case.window)] for case in cases]
        some = np.array([len(one) > 0 for one in wanted])
        cold = np.array([len(one) > 0 and not trained[one].any() for one in wanted])
        lists = found.lists[mode]
        figures = quality(lists[some], [one for one in wanted if len(one)])
        if cold.any():
            figures["cold_recall_at_10"] = quality(
                lists[cold], [one for one, yes in zip(wanted, cold, strict=True) if yes]
            )["recall_at_10"]
        out[mode] = {name: round(value, 5) for name, value in figures.items()}
        out[mode] |= {"cases": int(some.sum()), "cold_cases": int(cold.sum())}
    return out | {"chosen": msgspec.to_builtins(found.chosen)}


def _summary(
    args: argparse.Namespace, protocol: Protocol, overrides: list[str], runs: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Mean and spread (standard deviation) over the seeds, and how it was measured."""
    out: dict[str, Any] = {
        "data": args.data,
        "date": datetime.date.today().isoformat(),
        "command": f"./beforehand bench quality --data {args.data} --seeds {args.seeds} --json",
        "machine": {"cores": len(os.sched_getaffinity(0)), "system": platform.platform(), "threads": args.threads},
        "settings": overrides,
        "users": len(protocol.test),
        "items": protocol.num_items,
        "validation_cases": len(protocol.validation),
    }
    for method, figures in runs.items():
        out[method] = {
            mode: {name: round(statistics.fmean(one[mode][name] for one in figures), 5) for name in figures[0][mode]}
            | {f"{name}_spread": round(_spread([one[mode][name] for one in figures]), 5) for name in SHOWN}
            for mode in MODES
        } | {
            "seeds": len(figures),
            "train_minutes": round(statistics.fmean(one["train_minutes"] for one in figures), 2),
            "train_cpu_s": round(statistics.fmean(one["train_cpu_s"] for one in figures), 1),
            "chosen": [one["chosen"] for one in figures],
        }
    return out


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _show(result: dict[str, Any]) -> None:
    table = Table(title=f"{result['data']}: {result['users']:,} users, {result['items']:,} items")
    for name in ("method", "seen items", *SHOWN, "training"):
        table.add_column(name)
    for method, figures in result.items():
        if not isinstance(figures, dict) or "seeds" not in figures:
            continue
        for mode in MODES:
            row = [f"{figures[mode][name]:.4f} ±{figures[mode][f'{name}_spread']:.4f}" for name in SHOWN]
            took = figures["train_minutes"]
            table.add_row(method, mode.removeprefix("seen_"), *row, f"{took:.1f} min" if took is not None else "?")
    cli.say(table)


def _stored(data: str) -> cli.Result:
    """The newest result that was written, as it is."""
    paths = sorted(RESULTS.glob(f"*-quality-{data}.json"))
    if not paths:
        raise DataError("no stored result", where=str(RESULTS), value=data, mend="Run it without --stored.")
    result = msgspec.json.decode(paths[-1].read_bytes())
    _show(result)
    return result


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    cores = len(os.sched_getaffinity(0))
    add = parser.add_argument
    add("subject", choices=["quality"])
    add("--data", choices=DATA, required=True, help="the data set")
    add("--folder", metavar="PATH", help="where it is (default: ../shared/data/NAME beside the project)")
    add("--seeds", type=int, default=3, metavar="N", help="runs of each method that has a seed (default: 3)")
    add("--method", action="append", choices=list(methods.METHODS), help="only this one; then nothing is stored")
    add("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="another value than the plan's")
    add("--stored", action="store_true", help="print the newest stored result, and train nothing")
    add("--threads", type=int, default=cores, help=f"of torch (default: the cores allowed, {cores})")
