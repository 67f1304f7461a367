"""Stage ``evaluate``: popularity, neighbours and the generator on the held-back targets, with equal windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from offline.build.catalogue import Data, Index, read_data, read_index
from offline.build.stage import Build, Result
from offline.build.train_stage import read_generator
from offline.index.neighbours import window_neighbours
from offline.metrics import Bin, beyond, calibration, calibration_error, quality
from offline.recall import Recaller, choose_weights

REPORT = "report.json"
Lists = dict[str, NDArray[np.integer]]
_NAMES = {"generator": "", "with prompt": "prompted_", "neighbours": "neighbours_", "popular": "popular_"}


def evaluate(build: Build, folder: Path) -> Result:
    """Writes ``report.json``. The scores' weights are chosen on validation, never on the targets."""
    torch.set_num_threads(build.threads)
    index = read_index(build)
    data = read_data(build, index.number, targets=True)
    recaller = Recaller(read_generator(build, index), index.trie, index.category)
    keep = build.plan.nearline.neighbours
    near = window_neighbours(data.validation, index.lists, index.decay, keep, repeats=index.repeats)
    weights, validation = choose_weights(recaller.candidates(data.validation, near), data.validation)
    targets = [case.target for case in data.targets]
    near = window_neighbours(data.targets, index.lists, index.decay, keep, repeats=index.repeats)
    generated, scores = recaller.scored(recaller.candidates(data.targets, near), weights)
    bought = np.bincount(data.train.item, minlength=len(index.vectors))
    popular = np.argsort(-bought, kind="stable")[: build.plan.online.k_max]
    lists: Lists = {
        "": generated,
        "prompted_": recaller.lists(recaller.candidates(data.targets, near, prompted=True), weights),
        "neighbours_": near.items,
        "popular_": np.tile(popular, (len(targets), 1)),
    }
    metrics = {
        f"{prefix}{name}": value for prefix, found in lists.items() for name, value in quality(found, targets).items()
    } | {f"validation_{name}": value for name, value in validation.items()}
    metrics |= beyond(generated, index.vectors, bought)
    bins = calibration(generated, scores, targets)
    metrics |= {"calibration_error": calibration_error(bins)} if targets else {}
    metrics = {name: round(value, 5) for name, value in metrics.items()}
    report = _report(build, data, index) | {"metrics": metrics, "weights": weights, "calibration": _rounded(bins)}
    (folder / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    says = ", ".join(f"{who} {metrics[f'{key}recall_at_50']:.4f}" for who, key in _NAMES.items())
    return {"metrics": metrics, "weights": weights, "says": f"Recall@50 {says}"}


def _rounded(bins: list[Bin]) -> list[dict[str, float]]:
    return [{"said": round(one.said, 5), "found": round(one.found, 5), "places": one.places} for one in bins]


def _report(build: Build, data: Data, index: Index) -> dict[str, Any]:
    """What the figures were measured on."""
    trained = np.unique(data.train.item)
    cold = sum(not np.isin(case.target, trained).all() for case in data.targets)
    return {
        "data": build.name,
        "targets": len(data.targets),
        "empty_windows": sum(len(case.window) == 0 for case in data.targets),
        "with_cold_items": cold,
        "cold_items": len(index.vectors) - len(trained),
        "validation": len(data.validation),
        "seen_items": "kept: people buy the same things again",
        "index": {key: value for key, value in build.result("index").items() if key != "says"},
        "training": {key: value for key, value in build.result("train").items() if key != "says"},
    }
