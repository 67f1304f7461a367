"""Stage ``evaluate``: popularity, neighbours and the generator on the held-back targets, with equal windows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from offline.build.catalogue import read_data, read_index
from offline.build.stage import Build, Result
from offline.build.train_stage import read_generator
from offline.histories import Case
from offline.index.neighbours import window_neighbours
from offline.metrics import quality
from offline.recall import Candidates, Recaller

PATH = (0.0, 0.1, 0.4)
NEAR = (0.8, 1.2, 2.0, 4.0, 8.0)
FLOORS = (0.005, 0.02, 0.08)
REPORT = "report.json"


def evaluate(build: Build, folder: Path) -> Result:
    """Writes ``report.json``. The scores' weights are chosen on validation, never on the targets."""
    torch.set_num_threads(build.threads)
    index = read_index(build)
    generator = read_generator(build, index)
    data = read_data(build, index.number, targets=True)
    recaller = Recaller(generator, index.trie, index.category)
    keep = build.plan.nearline.neighbours
    near = window_neighbours(data.validation, index.lists, index.decay, keep)
    found = recaller.candidates(data.validation, near, prompted=False)
    weights, validation = choose_weights(recaller, found, data.validation, float(generator.near_weight.detach()))
    near = window_neighbours(data.targets, index.lists, index.decay, keep)
    targets = [case.target for case in data.targets]
    popular = np.argsort(-np.bincount(data.train.item, minlength=len(index.vectors)), kind="stable")
    lists = {
        "": recaller.lists(recaller.candidates(data.targets, near, prompted=False), weights),
        "prompted_": recaller.lists(recaller.candidates(data.targets, near, prompted=True), weights),
        "neighbours_": near.items,
        "popular_": np.tile(popular[:50], (len(targets), 1)),
    }
    metrics = {
        f"{prefix}{name}": value for prefix, found in lists.items() for name, value in quality(found, targets).items()
    } | {f"validation_{name}": value for name, value in validation.items()}
    metrics = {name: round(value, 5) for name, value in metrics.items()}
    report = {
        "data": build.name,
        "targets": len(targets),
        "empty_windows": sum(len(case.window) == 0 for case in data.targets),
        "validation": len(data.validation),
        "seen_items": "kept: people buy the same things again",
        "metrics": metrics,
        "weights": weights,
        "index": {key: value for key, value in build.result("index").items() if key != "says"},
        "training": {key: value for key, value in build.result("train").items() if key != "says"},
    }
    (folder / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    says = ", ".join(f"{who} {metrics[f'{key}recall_at_50']:.4f}" for who, key in _NAMES.items())
    return {"metrics": metrics, "weights": weights, "says": f"Recall@50 {says}"}


_NAMES = {"generator": "", "with prompt": "prompted_", "neighbours": "neighbours_", "popular": "popular_"}


def choose_weights(
    recaller: Recaller, found: Candidates, cases: Sequence[Case], near_weight: float
) -> tuple[list[float], dict[str, float]]:
    """The decoder's ``weights`` with the best Recall@10 + Recall@50, and the metrics they reach."""
    targets: list[NDArray[np.int64]] = [case.target for case in cases]
    best: tuple[float, list[float], dict[str, float]] | None = None
    for path in PATH:
        for near in NEAR:
            for floor in FLOORS:
                weights = [path, 1.0, round(near * near_weight, 4), floor]
                got = quality(recaller.lists(found, weights), targets)
                value = got["recall_at_10"] + got["recall_at_50"]
                if best is None or value > best[0] + 1e-9:
                    best = (value, weights, got)
    assert best is not None
    return best[1], best[2]
