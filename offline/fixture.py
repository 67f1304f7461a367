"""A tiny real release for the tests of every room, with the numbers that torch gives for a few inputs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import nn

from offline.export import export_graphs, model_arrays
from offline.index.trie import sid_order, trie_arrays
from offline.model.architecture import Architecture, release_sizes
from offline.model.generator import Generator
from offline.release_folder import Parts, make_release
from offline.samples import sample_inputs
from schemas.graphs import DECODER, INTENT_ENCODER, PROMPT_ENCODER, decoder_arrays
from schemas.release import Catalogue, Manifest, Profiles, load_private_key

ARCH = Architecture(
    width=16,
    layers=1,
    heads=2,
    window=8,
    state_rows=1,
    prompt_rows=1,
    local_events=4,
    levels=3,
    codes=8,
    num_items=60,
    num_buckets=4,
    vector_width=6,
    k_max=20,
    hidden=32,
)
NEIGHBOURS = 8
WEIGHTS = [1.0, 1.0, 1.0, 0.02]
CATEGORIES = ["fruit", "bread", "tea", "soap", "paper"]
TITLES = ['The "best" loaf', "绿茶 100 g", "Soap 🧼", "Crème brûlée", "<b>Paper</b> & pens"]
BUCKETS = ["everybody", "18-34|low", "35-54|middle", "55+|high"]
MADE_AT_MS = 1_750_000_000_000


def make_fixture(folder: Path) -> Manifest:
    """Write ``folder/release``, ``folder/release.pem``, ``folder/release.pub`` and ``folder/expected.json``."""
    generator, codes = _generator()
    category = np.arange(ARCH.num_items, dtype=np.int64) * 7 % len(CATEGORIES)
    arrays = model_arrays(generator, trie_arrays(codes), category) | _lists(generator)
    inputs = sample_inputs(ARCH, codes, len(CATEGORIES), neighbours=NEIGHBOURS, weights=WEIGHTS)
    graphs = folder / "graphs"
    graphs.mkdir(parents=True, exist_ok=True)
    export_graphs(generator, arrays, inputs, graphs)
    parts = Parts(
        model=release_sizes(ARCH, neighbours=NEIGHBOURS, decay=0.8, weights=WEIGHTS),
        graphs=graphs,
        arrays=arrays,
        catalogue=_catalogue(category),
        profiles=Profiles(BUCKETS, {f"u{number}": number % len(BUCKETS) for number in range(1, 9)}),
        report={"fixture": True},
        metrics={"recall_at_50": 0.5},
        input_hash="fixture",
    )
    manifest = make_release(folder, parts, load_private_key(folder / "release.pem", create=True), made_at_ms=MADE_AT_MS)
    shutil.rmtree(graphs)
    shutil.rmtree(folder / "release", ignore_errors=True)
    (folder / manifest.id).rename(folder / "release")
    (folder / "expected.json").write_bytes(msgspec.json.encode(expected(generator, arrays, inputs)) + b"\n")
    return manifest


def expected(generator: Generator, arrays: dict[str, np.ndarray], inputs: dict[str, Any]) -> dict[str, object]:
    """By graph: the inputs and what torch makes of them. Of the intent encoder the last row only."""
    table = torch.from_numpy(arrays["item_in"])
    more = [torch.from_numpy(arrays[name]) for name in decoder_arrays(ARCH.levels)]
    with torch.no_grad():
        rows = generator.intent_encoder(*inputs[INTENT_ENCODER].values(), table)
        prompt = generator.prompt_encoder(*inputs[PROMPT_ENCODER].values())
        item, score = generator.beam(*inputs[DECODER].values(), *more)
    outputs = {
        INTENT_ENCODER: {"last_row": rows[:, -1]},
        PROMPT_ENCODER: {"prompt": prompt},
        DECODER: {"item": item, "score": score},
    }
    return {
        graph: {
            "inputs": {name: value.tolist() for name, value in inputs[graph].items()},
            "outputs": {name: value.tolist() for name, value in out.items()},
        }
        for graph, out in outputs.items()
    }


def _generator() -> tuple[Generator, np.ndarray]:
    rng = np.random.default_rng(7)
    torch.manual_seed(7)
    every = np.stack(np.unravel_index(np.arange(ARCH.codes**3), (ARCH.codes,) * 3), axis=1)
    # Uneven on purpose: some prefixes hold one item, some hold many.
    odds = 0.4 ** every.sum(1).astype(float) + 1e-4
    codes = every[rng.choice(len(every), ARCH.num_items, replace=False, p=odds / odds.sum())]
    codes = codes[sid_order(codes)]
    generator = Generator(ARCH, rng.standard_normal((ARCH.num_items, ARCH.vector_width)), codes)
    with torch.no_grad():
        for module in generator.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.5)
        generator.item_bias.normal_(std=0.5)
    return generator.eval(), codes


def _lists(generator: Generator) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    vectors = generator.vectors.numpy()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = (unit @ unit.T).clip(0)
    near = np.argsort(-alike, axis=1, kind="stable")[:, :NEIGHBOURS]
    score = np.take_along_axis(alike, near, 1)
    near[score <= 0] = -1
    bias = generator.item_bias.detach().numpy() + rng.normal(0, 0.5, (ARCH.num_buckets, ARCH.num_items))
    best = np.argsort(-bias, axis=1, kind="stable")
    return {
        "neighbour_items": near.astype(np.int32),
        "neighbour_scores": score.astype(np.float32),
        "cohort_items": best.astype(np.int32),
        "cohort_scores": np.take_along_axis(bias, best, 1).astype(np.float32),
    }


def _catalogue(category: np.ndarray) -> Catalogue:
    # Ids in another order than the numbers: whoever mixes them up fails.
    names = [f"item-{(number * 37) % ARCH.num_items:03d}" for number in range(ARCH.num_items)]
    titles = [f"{TITLES[int(kind)]} {name}" for kind, name in zip(category, names, strict=True)]
    return Catalogue(names, titles, CATEGORIES)
