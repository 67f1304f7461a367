"""A generator over any small catalogue, and the naive way to decode it."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from offline.index.trie import category_sets, trie_arrays
from offline.model.architecture import Architecture
from offline.model.beam import Request
from offline.model.generator import Generator
from schemas.graphs import decoder_arrays


def architecture(num_items: int, *, levels: int = 3, codes: int = 4, k_max: int = 50) -> Architecture:
    return Architecture(
        width=8,
        layers=1,
        heads=2,
        window=6,
        state_rows=1,
        prompt_rows=1,
        local_events=3,
        levels=levels,
        codes=codes,
        num_items=num_items,
        num_buckets=2,
        vector_width=5,
        k_max=k_max,
        hidden=16,
    )


def generator_for(codes: np.ndarray, *, seed: int = 0, num_codes: int = 4, k_max: int = 50) -> Generator:
    """Seeded weights, large enough that scores differ."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    arch = architecture(len(codes), levels=codes.shape[1], codes=num_codes, k_max=k_max)
    generator = Generator(arch, rng.standard_normal((len(codes), 5)), codes)
    with torch.no_grad():
        for module in generator.modules():
            if isinstance(module, nn.Embedding):
                module.weight.normal_(std=0.7)
        generator.item_bias.normal_()
    return generator.eval()


def arrays_for(generator: Generator, category: np.ndarray | None = None) -> list[torch.Tensor]:
    codes = generator.codes.numpy()
    category = np.zeros(len(codes), np.int64) if category is None else category
    with torch.no_grad():
        trie = trie_arrays(codes)
        named = {
            **trie,
            **category_sets(trie["item_path"], category),
            "item_out": generator.item_out().numpy(),
            "item_bias": generator.item_bias.numpy(),
            "item_category": category,
        }
    return [torch.from_numpy(named[name]) for name in decoder_arrays(codes.shape[1])]


def request_for(generator: Generator, *, batch: int = 2, seed: int = 0, near: list[list[int]] | None = None) -> Request:
    rng = torch.Generator().manual_seed(seed)
    arch = generator.arch
    item = torch.tensor(near if near is not None else [[-1]] * batch)
    return Request(
        torch.randn(batch, 1, arch.width, generator=rng),
        torch.randn(batch, 1, arch.width, generator=rng),
        item,
        torch.rand(item.shape, generator=rng),
        torch.full((batch, 1), -1),
        torch.full((batch, 1), -1),
        torch.tensor([0.8, 0.5, 0.3, 0.02]),
    )


def naive_scores(generator: Generator, request: Request, row: int) -> list[float]:
    """Every item's score, by the definition: one softmax per node over its children, one item at a time."""
    codes = [tuple(c) for c in generator.codes.tolist()]
    w = request.weights.tolist()
    near = dict.fromkeys(range(len(codes)), 0.0)
    for item, score in zip(request.neighbour_item[row].tolist(), request.neighbour_score[row].tolist(), strict=True):
        if item >= 0:
            near[item] = score
    with torch.no_grad():
        query = generator.decoder.join(request.intent, request.prompt)[row : row + 1]
        affinity = (generator.item_out() @ generator.decoder.item_query(query)[0] + generator.item_bias).tolist()
        scores = []
        for number, path in enumerate(codes):
            chance = 0.0
            for level, code in enumerate(path):
                prefix = torch.tensor([[list(path[:level])]], dtype=torch.long).reshape(1, 1, level)
                logits = generator.decoder.heads[level](query, prefix.unbind(2))[0, 0].tolist()
                children = {c[level] for c in codes if c[:level] == path[:level]}
                total = math.log(sum(math.exp(logits[c]) for c in children))
                chance += logits[code] - total
            scores.append(w[0] * chance + w[1] * affinity[number] + w[2] * math.log(near[number] + w[3]))
    return scores
