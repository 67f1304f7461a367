"""The constrained beam: all levels, the neighbours and the filters as one graph.

At a level every node of the beam is widened to its children in the trie and only those compete: a code that no
item has is never scored. A score is the log-probability of the path. The neighbours' paths are scored by the same
heads, so both kinds of candidate compare.

Equal scores: the lower item number comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

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
    """A beam: node numbers at a depth [B, W], their log-probabilities, and the codes that lead to them."""

    node: Tensor
    score: Tensor
    codes: Tensor


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
        known, forced = self.force(query, request.neighbour_item, levels, items, limits)
        # The beam's copy of a neighbour goes: the neighbour's own carries its score.
        twice = ((beam.node.unsqueeze(-1) == known.unsqueeze(1)) & (forced > IMPOSSIBLE).unsqueeze(1)).any(-1)
        item = torch.cat([beam.node, known], dim=1)
        path = torch.cat([torch.where(twice, MASKED, beam.score), forced], dim=1)
        near = torch.cat([torch.zeros_like(beam.score), request.neighbour_score], dim=1)
        affinity = (take(items.out, item) @ self.decoder.item_query(query).unsqueeze(-1)).squeeze(-1)
        return item, path, affinity + take(items.bias, item), near

    def search(self, query: Tensor, levels: Sequence[Level], limits: Limits) -> Nodes:
        """The best leaves [B, 2 · k_max] by log-probability: more than are asked for, so that the item head chooses."""
        start = torch.zeros_like(query[:, :1])
        beam = Nodes(start.long(), start, start.long()[:, :, None][:, :, :0])
        for depth, level in enumerate(levels):
            position, code, real = level.children(beam.node)
            step = self.step(depth, query, beam.codes, code, real)
            last = depth == len(levels) - 1
            may = limits.leaves(position) if last else limits.nodes(depth, position)
            score = torch.where(real & may, beam.score.unsqueeze(-1) + step, MASKED)
            beam = cut(beam, position, code, score, self.widths[depth])
        return beam

    def step(self, depth: int, query: Tensor, prefix: Tensor, code: Tensor, real: Tensor) -> Tensor:
        """Log-probability of each child, over the children that exist: [B, W, F]."""
        scores = self.decoder.heads[depth](query, prefix).gather(2, code)
        return torch.log_softmax(torch.where(real, scores, MASKED), dim=-1)

    def force(
        self, query: Tensor, item: Tensor, levels: Sequence[Level], items: Items, limits: Limits
    ) -> tuple[Tensor, Tensor]:
        """The neighbours, -1 made 0, and the log-probability of their paths; ``MASKED`` where not allowed."""
        known = item.clamp(min=0)
        codes = take(items.codes, known)
        path = torch.cat([take(items.path, known), known.unsqueeze(-1)], dim=-1)
        total = torch.zeros_like(known, dtype=query.dtype)
        for depth, level in enumerate(levels):
            node = path[:, :, depth]
            # All paths begin at the root: it is scored once.
            parent = node[:, :1] if depth == 0 else node
            _, code, real = level.children(parent)
            step = self.step(depth, query, codes[:, : parent.shape[1], :depth], code, real)
            place = path[:, :, depth + 1] - take(level.offset, node)
            chosen = step[:, 0].gather(1, place) if depth == 0 else step.gather(2, place.unsqueeze(-1)).squeeze(-1)
            total = total + chosen
        return known, torch.where((item >= 0) & first_of_each(item) & limits.leaves(known), total, MASKED)


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
    """The best ``width`` of the children [B, W, F]; padded where there are fewer."""
    spare = torch.full_like(score[:, 0, :1], MASKED).expand(-1, width)
    top, index = torch.cat([score.flatten(1), spare], dim=1).topk(width, dim=1)
    inside = index < score.shape[1] * score.shape[2]
    index = torch.where(inside, index, 0)
    parent = index // score.shape[2]
    before = beam.codes.gather(1, parent.unsqueeze(-1).expand(-1, -1, beam.codes.shape[2]))
    chosen = code.flatten(1).gather(1, index)
    return Nodes(position.flatten(1).gather(1, index), top, torch.cat([before, chosen.unsqueeze(-1)], dim=-1))


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
