"""Runs the generator over many requests, as the tiers would: encode, prompt, decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offline.export import model_arrays
from offline.histories import Case
from offline.index.neighbours import Neighbours
from offline.metrics import CUTS, JUDGED_BY, quality
from offline.model.beam import IMPOSSIBLE, Request, best, blend
from offline.model.generator import Generator
from offline.train.examples import HOUR_MS, clock_features
from schemas.graphs import decoder_arrays, gap_feature

Floats = NDArray[np.float32]
BATCH = 32
TRIED = {
    0: (0.0, 0.1, 0.25, 0.5, 1.0),
    2: (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 12.0),
    3: (0.002, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4),
}
"""What is tried of the decoder's weights, by place: of the path, of the neighbours, their floor. One at a time, the
others as they are then; twice through."""
BEGIN = (0.25, 1.0, 2.0, 0.02)
ROUNDS = 2
Candidates = tuple[Tensor, Tensor, Tensor, Tensor]


class Recaller:
    """The generator with its arrays; ``trie`` and ``category`` as in ``schemas.graphs``."""

    def __init__(self, generator: Generator, trie: Mapping[str, np.ndarray], category: np.ndarray) -> None:
        self.generator = generator.eval()
        arrays = model_arrays(generator, trie, category)
        self.item_in = torch.from_numpy(arrays["item_in"])
        self.arrays = [torch.from_numpy(arrays[name]) for name in decoder_arrays(generator.arch.levels)]

    @torch.no_grad()
    def candidates(
        self, cases: Sequence[Case], near: Neighbours, *, prompted: bool = False, seen: bool = True
    ) -> Candidates:
        """Per case: items, log-probabilities, item scores, neighbour scores; weights are applied by ``lists``.

        ``prompted``: with what the device knows. ``seen``: whether items of the window may be recalled.
        """
        parts = []
        for begin in range(0, len(cases), BATCH):
            some = cases[begin : begin + BATCH]
            rows = slice(begin, begin + len(some))
            request = Request(
                self.intent(some),
                self.prompt(some) if prompted else self._default_prompt(some),
                torch.from_numpy(near.items[rows].astype(np.int64)),
                torch.from_numpy(near.scores[rows]),
                torch.full((len(some), 1), -1) if seen else _windows(some),
                torch.full((len(some), 1), -1),
                torch.zeros(4),
            )
            parts.append(self.generator.beam.candidates(request, self.arrays))
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]

    def lists(self, candidates: Candidates, weights: Sequence[float]) -> NDArray[np.int64]:
        """Item numbers [cases, k_max], best first."""
        return self.scored(candidates, weights)[0]

    def scored(self, candidates: Candidates, weights: Sequence[float]) -> tuple[NDArray[np.int64], Floats]:
        """Items and scores [cases, k_max], best first."""
        item, path, affinity, near = candidates
        score = blend(path, affinity, near, torch.tensor(weights))
        items, scores = best(item, score, self.generator.arch.k_max)
        return items.numpy(), scores.numpy()

    def intent(self, cases: Sequence[Case]) -> Tensor:
        """States [B, R, d]; a user without events has the bucket's default rows."""
        arch = self.generator.arch
        shape = (len(cases), arch.window)
        item, kind, gap = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for row, case in enumerate(cases):
            if length := len(case.window):
                item[row, -length:] = case.window + 1
                kind[row, -length:] = case.kinds
                gap[row, -length:] = [0.0, *map(gap_feature, np.diff(case.times))]
        rows = self.generator.intent_encoder(*map(torch.from_numpy, (item, kind, gap)), self.item_in)
        rows = rows[:, -arch.state_rows :]
        empty = torch.tensor([len(case.window) == 0 for case in cases])
        bucket = torch.tensor([case.bucket for case in cases])
        # Rows travel as fp16.
        return torch.where(empty[:, None, None], self.generator.intent_defaults[bucket], rows).half().float()

    def prompt(self, cases: Sequence[Case]) -> Tensor:
        """Prompt rows [B, P, d] of what the device knows."""
        arch = self.generator.arch
        codes = np.full((len(cases), arch.local_events, arch.levels), -1, np.int64)
        kind = np.zeros(codes.shape[:2], np.int64)
        age = np.zeros(codes.shape[:2], np.float32)
        known = self.generator.codes.numpy()
        for row, case in enumerate(cases):
            local = case.local[-arch.local_events :]
            for place, (item, what, at) in enumerate(local, arch.local_events - len(local)):
                codes[row, place], kind[row, place] = known[item], what
                age[row, place] = np.log1p(max(0, case.at - at) / HOUR_MS)
        clock = clock_features(np.array([case.at for case in cases]))
        bucket = np.array([case.bucket for case in cases], np.int64)
        return self.generator.prompt_encoder(*map(torch.from_numpy, (bucket, clock, codes, kind, age)))

    def _default_prompt(self, cases: Sequence[Case]) -> Tensor:
        return self.generator.prompt_defaults[torch.tensor([case.bucket for case in cases])]


def _windows(cases: Sequence[Case]) -> Tensor:
    """The items of each window, int64 [B, X], -1 padding."""
    out = np.full((len(cases), max(1, *(len(case.window) for case in cases))), -1, np.int64)
    for row, case in enumerate(cases):
        out[row, : len(case.window)] = case.window
    return torch.from_numpy(out)


def _front(found: Candidates, weights: Sequence[float]) -> NDArray[np.int64]:
    """The first items [cases, ≤ 50] of what ``Recaller.lists`` gives, equal scores in any order: without a sort."""
    item, path, affinity, near = found
    score = blend(path, affinity, near, torch.tensor(weights))
    top = score.topk(min(CUTS[-1], score.shape[1]), dim=1)
    return torch.where(top.values > IMPOSSIBLE, item.gather(1, top.indices), -1).numpy()


def choose_weights(
    found: Candidates, cases: Sequence[Case], by: Sequence[str] = JUDGED_BY
) -> tuple[list[float], dict[str, float]]:
    """The decoder's ``weights`` with the largest sum of the metrics ``by``, and the metrics they reach.

    The item score has the weight 1: only the order counts.
    """
    targets = [case.target for case in cases]
    tried: dict[tuple[float, ...], tuple[float, dict[str, float]]] = {}

    def value(weights: tuple[float, ...]) -> float:
        if weights not in tried:
            got = quality(_front(found, weights), targets)
            tried[weights] = sum(got[name] for name in by), got
        return tried[weights][0]

    weights = BEGIN
    for _ in range(ROUNDS):
        for place, options in TRIED.items():
            weights = max(((*weights[:place], one, *weights[place + 1 :]) for one in options), key=value)
    return list(weights), tried[weights][1]
