"""A release at the plan's sizes without training: for the look-up service's bench on a machine that has built none.

Its answers mean nothing; its graphs have the shapes, and so the cost, of a trained release's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from offline.export import export_graphs, model_arrays
from offline.index.trie import sid_order, trie_arrays
from offline.model.architecture import from_plan, release_sizes
from offline.model.generator import Generator
from offline.release_folder import Parts, make_release
from offline.samples import sample_inputs
from schemas.locations import private_key_path
from schemas.plan import Plan
from schemas.release import Catalogue, Manifest, Profiles, load_private_key

NUM_ITEMS, NUM_BUCKETS, CATEGORIES = 2_000, 16, ["things", "more things"]
WEIGHTS = [1.0, 1.0, 1.0, 0.02]


def make_untrained(parent: Path, plan: Plan) -> Manifest:
    """Write ``parent/<id>``: random weights and ``NUM_ITEMS`` made-up items, signed with this machine's key."""
    codes_per_level = plan.index.codes
    arch = from_plan(
        plan, num_items=NUM_ITEMS, num_buckets=NUM_BUCKETS, vector_width=plan.index.vector_width, codes=codes_per_level
    )
    draw = np.random.default_rng(1)
    torch.manual_seed(1)
    flat = draw.choice(codes_per_level**arch.levels, NUM_ITEMS, replace=False)
    codes = np.stack(np.unravel_index(flat, (codes_per_level,) * arch.levels), axis=1)
    codes = codes[sid_order(codes)]
    generator = Generator(arch, draw.standard_normal((NUM_ITEMS, arch.vector_width)), codes).eval()
    arrays = model_arrays(generator, trie_arrays(codes), draw.integers(0, len(CATEGORIES), NUM_ITEMS))
    neighbours = plan.nearline.neighbours
    inputs = sample_inputs(arch, codes, len(CATEGORIES), neighbours=neighbours, weights=WEIGHTS)
    ids = [f"item-{number}" for number in range(NUM_ITEMS)]
    with tempfile.TemporaryDirectory() as graphs:
        export_graphs(generator, arrays, inputs, Path(graphs))
        parts = Parts(
            model=release_sizes(arch, neighbours=neighbours, decay=0.8, weights=WEIGHTS),
            graphs=Path(graphs),
            arrays=arrays | _lists(draw, neighbours),
            catalogue=Catalogue(ids, ids, CATEGORIES),
            profiles=Profiles([f"bucket {number}" for number in range(NUM_BUCKETS)], {}),
            report={"untrained": True},
            metrics={},
            input_hash="untrained",
        )
        return make_release(parent, parts, load_private_key(private_key_path(), create=True))


def _lists(draw: np.random.Generator, neighbours: int) -> dict[str, np.ndarray]:
    length = 200
    return {
        "neighbour_items": draw.integers(0, NUM_ITEMS, (NUM_ITEMS, neighbours)).astype(np.int32),
        "neighbour_scores": draw.random((NUM_ITEMS, neighbours), np.float32),
        "cohort_items": draw.integers(0, NUM_ITEMS, (NUM_BUCKETS, length)).astype(np.int32),
        "cohort_scores": np.tile(np.linspace(2, 1, length, dtype=np.float32), (NUM_BUCKETS, 1)),
    }
