"""Stage ``export``: the three graphs and the arrays they take, checked against torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from offline.build.catalogue import read_index, save
from offline.build.stage import Build, Result
from offline.build.train_stage import architecture, read_generator
from offline.export import export_graphs, model_arrays
from offline.samples import sample_inputs


def export(build: Build, folder: Path) -> Result:
    """Writes the ONNX files and ``arrays/``."""
    torch.set_num_threads(build.threads)
    index = read_index(build)
    generator = read_generator(build, index)
    arrays = model_arrays(generator, index.trie, index.category)
    samples = sample_inputs(
        architecture(build, index),
        index.codes,
        len(index.categories),
        neighbours=build.plan.nearline.neighbours,
        weights=build.result("evaluate")["weights"],
    )
    export_graphs(generator, arrays, samples, folder)
    (folder / "arrays").mkdir()
    save(folder / "arrays", **arrays)
    num_bytes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.onnx"))}
    return {
        "num_bytes": num_bytes,
        "says": ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in num_bytes.items()),
    }


def read_arrays(build: Build) -> dict[str, np.ndarray]:
    """The arrays that this stage wrote."""
    return {path.stem: np.load(path) for path in sorted((build.folder("export") / "arrays").glob("*.npy"))}
