"""The constrained beam: all levels, the neighbours and the filters as one graph.

At a level every node of the beam is widened to its children in the trie and only those compete: a code that no
item has is never scored. A score is the log-probability of the path. The window's neighbours join at the end.

Equal scores: the lower item number comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from offline.model.architecture import Architecture
from offline.model.decoder import Decoder
from offline.model.intent_encoder import MASKED
from offline.model.limits import Items, Limits, Sets, take

IMPOSSIBLE = MASKED / 2
"""Scores below it belong to nothing real."""


SMALLEST = 1e-9
"""Floor under a logarithm."""


class Request(NamedTuple):
    """The inputs of a request, as in ``schemas.graphs``."""

    intent: Tensor
    prompt: Tensor
    neighbour_item: Tensor
    neighbour_score: Tensor
    exclude: Tensor
    allow: Tensor
    weights: Tensor


class Nodes(NamedTuple):
    """Nodes of one depth: their numbers [B, W], their log-probabilities, and the codes that lead to them, a [B, W] of
    each level before."""

    node: Tensor
    score: Tensor
    codes: tuple[Tensor, ...]


class Level(NamedTuple):
    """One level of the trie: children of node j are ``offset[j] … offset[j + 1]``; ``fan`` is 0 … most - 1."""

    offset: Tensor
    child: Tensor
    fan: Tensor

    def children(self, node: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Positions, codes and validity of the children of ``node`` [B, W] → three of [B, W, F]."""
        position = take(self.offset, node).unsqueeze(-1) + self.fan
        real = position < take(self.offset, node + 1).unsqueeze(-1)
        position = position.clamp(max=self.child.shape[0] - 1)
        return position, take(self.child, position), real


class Beam(nn.Module):
    """``schemas.graphs``: decoder.onnx. The same module evaluates, makes lists and is exported."""

    def __init__(self, decoder: Decoder, arch: Architecture) -> None:
        super().__init__()
        self.decoder = decoder
        self.widths = arch.beam
        self.k_max = arch.k_max

    def forward(  # noqa: PLR0917 — the graph's inputs, by place
        self,
        intent: Tensor,
        prompt: Tensor,
        neighbour_item: Tensor,
        neighbour_score: Tensor,
        exclude: Tensor,
        allow: Tensor,
        weights: Tensor,
        *arrays: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Items int64 [B, k_max] and scores [B, k_max], best first; -1 and ``MASKED`` where there is no more.

        ``arrays`` in the order of ``schemas.graphs.decoder_arrays``. Neighbours are taken whether the beam finds
        them or not. ``exclude`` and ``allow`` act before every cut: what may not be shown takes no place.
        """
        request = Request(intent, prompt, neighbour_item, neighbour_score, exclude, allow, weights)
        item, path, affinity, near = self.candidates(request, arrays)
        score = blend(path, affinity, near, weights)
        return best(item, score, self.k_max)

    def candidates(self, request: Request, arrays: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The beam's leaves and the neighbours, each once: item, log-probability, item score, neighbour score."""
        levels, items, sets = split(arrays)
        query = self.decoder.join(request.intent, request.prompt)
        limits = Limits(request.exclude, request.allow, [level.offset for level in levels], items, sets)
        beam = self.search(query, levels, limits)
        # One that was withdrawn since has a number behind the leaves'.
        given = torch.where(request.neighbour_item < levels[-1].child.shape[0], request.neighbour_item, -1)
        path, near = joined(beam, given, limits)
        item = torch.cat([beam.node, given.clamp(min=0)], dim=1)
        near_score = torch.cat([torch.zeros_like(beam.score), request.neighbour_score], dim=1)
        affinity = (take(items.out, item) @ self.decoder.item_query(query).unsqueeze(-1)).squeeze(-1)
        return item, torch.cat([path, near], dim=1), affinity + take(items.bias, item), near_score

    def search(self, query: Tensor, levels: Sequence[Level], limits: Limits) -> Nodes:
        """The best leaves [B, 2 · k_max] by log-probability: more than are asked for, so that the item head chooses."""
        start = torch.zeros_like(query[:, :1])
        beam = Nodes(start.long(), start, ())
        for depth, level in enumerate(levels):
            position, code, real = level.children(beam.node)
            step = self.step(depth, query, beam.codes, code, real)
            child, score = position.flatten(1), (beam.score.unsqueeze(-1) + step).flatten(1)
            last = depth == len(levels) - 1
            score = limits.leaves(child, score) if last else limits.nodes(depth, child, score)
            beam = cut(beam, child, code, score, self.widths[depth])
        return beam

    def step(self, depth: int, query: Tensor, prefix: Sequence[Tensor], code: Tensor, real: Tensor) -> Tensor:
        """Log-probability of each child, over the children that exist: [B, W, F]; of others below ``IMPOSSIBLE``."""
        scores = self.decoder.heads[depth](query, prefix).gather(2, code)
        return torch.log_softmax(torch.where(real, scores, MASKED), dim=-1)


def joined(beam: Nodes, given: Tensor, limits: Limits) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the beam's leaves and of the neighbours ``given`` [B, M] (-1 padding), each item once: the
    beam's copy of a neighbour goes, for the neighbour's own carries its score.

    A neighbour that the beam has not found is taken for as likely as the last leaf that it has. To score each one's
    own path cost half of the graph, and found no more (``benchmarks/results/2026-11-30-decode.md``).
    """
    found = beam.score > IMPOSSIBLE
    same = (beam.node.unsqueeze(-1) == given.unsqueeze(1)) & found.unsqueeze(-1)
    own = torch.where(same, beam.score.unsqueeze(-1), MASKED).amax(1)
    last = torch.where(found, beam.score, 0.0).amin(1, keepdim=True)
    path = torch.where(own > IMPOSSIBLE, own, last)
    path = torch.where((given >= 0) & first_of_each(given), path, MASKED)
    return torch.where(same.any(-1), MASKED, beam.score), limits.leaves(given.clamp(min=0), path)


def blend(path: Tensor, affinity: Tensor, near: Tensor, weights: Tensor) -> Tensor:
    """w₀ · log-probability + w₁ · item score + w₂ · log(neighbour score + w₃); ``MASKED`` where there is no item."""
    close = torch.log((near + weights[3]).clamp(min=SMALLEST))
    score = weights[0] * path + weights[1] * affinity + weights[2] * close
    return torch.where(path > IMPOSSIBLE, score, MASKED)


def split(arrays: Sequence[Tensor]) -> tuple[list[Level], Items, Sets]:
    """The decoder's arrays, in the order of ``schemas.graphs.decoder_arrays``, as levels, items and category sets."""
    num_items_arrays = len(Items._fields)
    levels = (len(arrays) - num_items_arrays) // 4  # three arrays each, and a row of sets but for the last: the words
    trie, about, sets = arrays[: 3 * levels], arrays[3 * levels : -levels], arrays[-levels:]
    return [Level(*trie[i : i + 3]) for i in range(0, len(trie), 3)], Items(*about), Sets(sets[:-1], sets[-1])


def cut(beam: Nodes, position: Tensor, code: Tensor, score: Tensor, width: int) -> Nodes:
    """The best ``width`` of the children: ``position`` and ``score`` [B, W · F], ``code`` [B, W, F]. Where there are
    fewer the last stands in, with the score ``MASKED``."""
    top, index = functional.pad(score, (0, width), value=MASKED).topk(width, dim=1)
    index = index.clamp(max=score.shape[1] - 1)
    parent = index // code.shape[2]
    codes = (*(before.gather(1, parent) for before in beam.codes), code.flatten(1).gather(1, index))
    return Nodes(position.gather(1, index), top, codes)


def first_of_each(item: Tensor) -> Tensor:
    """Bool [B, M]: no equal number stands before it."""
    same = item.unsqueeze(2) == item.unsqueeze(1)
    place = torch.arange(item.shape[1])
    earlier = place.unsqueeze(0) < place.unsqueeze(1)
    return ~(same & earlier).any(-1)


def best(item: Tensor, score: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` best by score, the lower number first among equals; -1 for what is impossible."""
    # On a CPU torch sorts stably without being asked; the exporter does not know ``stable=True``.
    item, order = torch.sort(item, dim=1)
    score, index = torch.sort(score.gather(1, order), dim=1, descending=True)
    item = item.gather(1, index)
    return torch.where(score > IMPOSSIBLE, item, -1)[:, :k], score[:, :k]
