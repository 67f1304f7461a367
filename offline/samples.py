"""Seeded inputs for the three graphs: for the check at export and for the fixture's expected numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from offline.model.architecture import Architecture
from schemas.graphs import DECODER, INTENT_ENCODER, INTENT_STEP, PROMPT_ENCODER
from schemas.names import Kind

BATCH = 4


def sample_inputs(
    arch: Architecture, codes: np.ndarray, num_categories: int, *, neighbours: int, weights: list[float], seed: int = 0
) -> dict[str, dict[str, Tensor]]:
    """Inputs of each graph, by name, arrays left out.

    The first user has no events at all, the second a full window, the others something between. The decoder's third
    request excludes items, its fourth allows two categories only.
    """
    rng = np.random.default_rng(seed)
    inputs = {
        INTENT_ENCODER: _windows(rng, arch),
        INTENT_STEP: _steps(np.random.default_rng(seed), arch),
        PROMPT_ENCODER: _local_events(rng, arch, codes),
        DECODER: _requests(rng, arch, num_categories, neighbours, weights),
    }
    return {graph: {name: torch.from_numpy(value) for name, value in named.items()} for graph, named in inputs.items()}


def _real(rng: np.random.Generator, longest: int) -> np.ndarray:
    """Bool [B, longest], padded on the left: none, all, and numbers between."""
    count = rng.integers(1, longest + 1, BATCH)
    count[:2] = (0, longest)
    return np.arange(longest)[::-1] < count[:, None]


def _windows(rng: np.random.Generator, arch: Architecture) -> dict[str, np.ndarray]:
    real = _real(rng, arch.window)
    return {
        "item": np.where(real, rng.integers(1, arch.num_items + 1, real.shape), 0),
        "kind": np.where(real, rng.integers(1, len(Kind) + 1, real.shape), 0),
        "gap": np.where(real, rng.exponential(1.0, real.shape), 0.0).astype(np.float32),
    }


def _steps(rng: np.random.Generator, arch: Architecture) -> dict[str, np.ndarray]:
    """Three new events after five."""
    new, past = (BATCH, 3), (BATCH, arch.layers, arch.heads, 5, arch.width // arch.heads)
    return {
        "item": rng.integers(1, arch.num_items + 1, new),
        "kind": rng.integers(1, len(Kind) + 1, new),
        "gap": rng.exponential(1.0, new).astype(np.float32),
        "past_key": rng.standard_normal(past).astype(np.float32),
        "past_value": rng.standard_normal(past).astype(np.float32),
    }


def _local_events(rng: np.random.Generator, arch: Architecture, codes: np.ndarray) -> dict[str, np.ndarray]:
    real = _real(rng, arch.local_events)
    angle = rng.uniform(0, 2 * np.pi, (BATCH, 2))
    clock = np.stack([np.sin(angle[:, 0]), np.cos(angle[:, 0]), np.sin(angle[:, 1]), np.cos(angle[:, 1])], 1)
    return {
        "bucket": np.arange(BATCH) % arch.num_buckets,
        "clock": clock.astype(np.float32),
        "codes": np.where(real[..., None], codes[rng.integers(0, arch.num_items, real.shape)], -1),
        "kind": np.where(real, rng.integers(1, len(Kind) + 1, real.shape), 0),
        "age": np.where(real, rng.exponential(0.01, real.shape), 0.0).astype(np.float32),
    }


def _requests(
    rng: np.random.Generator, arch: Architecture, num_categories: int, neighbours: int, weights: list[float]
) -> dict[str, np.ndarray]:
    near = np.stack([rng.permutation(max(arch.num_items, neighbours))[:neighbours] for _ in range(BATCH)])
    exclude = np.full((BATCH, 6), -1)
    exclude[2] = near[2, 0] % arch.num_items
    exclude[2, 1:5] = rng.integers(0, arch.num_items, 4)
    allow = np.full((BATCH, 2), -1)
    allow[3] = rng.integers(0, num_categories, 2)
    return {
        "intent": rng.standard_normal((BATCH, arch.state_rows, arch.width)).astype(np.float32),
        "prompt": rng.standard_normal((BATCH, arch.prompt_rows, arch.width)).astype(np.float32),
        "neighbour_item": np.where(near < arch.num_items, near, -1),
        "neighbour_score": np.sort(rng.uniform(0, 1, near.shape).astype(np.float32), axis=1)[:, ::-1].copy(),
        "exclude": exclude,
        "allow": allow,
        "weights": np.asarray(weights, np.float32),
    }
