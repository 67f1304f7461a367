"""Stage ``export``: the three graphs, checked against torch, each in the fastest form within the plan's bound; and
the arrays they take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import torch

from offline.build.catalogue import Index, read_data, read_index, save
from offline.build.requests import real_requests
from offline.build.stage import Build, Result, read_record
from offline.build.train_stage import architecture, read_generator
from offline.build.variants import GRAPHS, Judge, Judged, judge_variants, put_chosen
from offline.export import check_runtime, export_graphs, model_arrays
from offline.model.architecture import release_sizes
from offline.samples import sample_inputs
from schemas import cli
from schemas.release import Model, file_entry

JUDGED_ON = 100
"""Requests."""


def export(build: Build, folder: Path) -> Result:
    """Writes the ONNX files and ``arrays/``. The result's ``graphs`` has a row for each form of each graph.

    Raises:
        ReleaseError: a graph differs from torch, or needs a newer runtime than the release declares.
    """
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
    key = _judged_key(build, folder)
    judged = _smaller(build, index, arrays, folder)
    for path in folder.glob("*.onnx"):
        check_runtime(path)
    (folder / "arrays").mkdir()
    save(folder / "arrays", **arrays)
    num_bytes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.onnx"))}
    return {
        "num_bytes": num_bytes,
        "graphs": msgspec.to_builtins(judged),
        "judged": key,
        "says": ", ".join(f"{name} {size / 1e6:.1f} MB{_form(judged, name)}" for name, size in num_bytes.items()),
    }


def _smaller(build: Build, index: Index, arrays: Mapping[str, np.ndarray], folder: Path) -> list[Judged]:
    """Puts the chosen forms in place. Without a validation session there is nothing to judge by: all stay fp32.

    Graphs that were judged before are not judged again: times differ from run to run, and equal inputs must give
    equal releases.
    """
    known = read_record(build, "export")
    if known and known.result.get("judged") == _judged_key(build, folder):
        judged = msgspec.convert(known.result["graphs"], list[Judged])
    else:
        cases = read_data(build, index.number).validation
        requests = real_requests(cases, index, sizes(build), JUDGED_ON)
        judge = Judge(folder, arrays, requests, build.plan.export.min_overlap)
        judged = judge_variants(folder, judge) if requests else []
    put_chosen(folder, judged)
    for one in judged:
        told = one.failed or f"{one.ms:.2f} ms, overlap {one.overlap:.4f}, {one.num_bytes / 1e6:.1f} MB"
        cli.say(f"  {one.graph} {one.kind}: {told}{' ← chosen' if one.chosen else ''}")
    return judged


def _judged_key(build: Build, folder: Path) -> dict[str, object]:
    """What the judgement depends on."""
    digests = {graph: file_entry(folder / graph).sha256 for graph in GRAPHS}
    return {**digests, "min_overlap": build.plan.export.min_overlap}


def _form(judged: list[Judged], name: str) -> str:
    return next((f" {one.kind}" for one in judged if one.graph == name and one.chosen), "")


def sizes(build: Build) -> Model:
    """The sizes that every tier must agree on."""
    index = read_index(build)
    arch = architecture(build, index)
    return release_sizes(
        arch,
        neighbours=build.plan.nearline.neighbours,
        decay=index.decay,
        weights=build.result("evaluate")["weights"],
        repeats=index.repeats,
    )


def read_arrays(build: Build) -> dict[str, np.ndarray]:
    """The arrays that this stage wrote."""
    return {path.stem: np.load(path) for path in sorted((build.folder("export") / "arrays").glob("*.npy"))}
