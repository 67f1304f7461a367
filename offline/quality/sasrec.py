"""The baseline SASRec: item embeddings and a causal transformer, nothing else; scores every item.

W.-C. Kang and J. McAuley, "Self-Attentive Sequential Recommendation", ICDM 2018; with a sampled softmax instead of
one negative, which is stronger. The encoder is the generator's own. It learns from item numbers alone and begins slowly
(for some ten epochs it knows little but popularity), so it has settings of its own, and no early stop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from offline.histories import Case
from offline.metrics import quality
from offline.model.architecture import Architecture
from offline.model.intent_encoder import MASKED, IntentEncoder
from offline.quality.protocol import Protocol
from offline.train.examples import Batch, Examples
from offline.train.trainer import Trainer
from schemas.plan_types import ModelPlan

DROPOUT = 0.3
NEGATIVES = 2_048
BATCH = 256
JUDGED = 1_500
EPOCHS, TARGETS, LEARNING_RATE = 30, 256, 1e-3
SPREAD = 0.1
"""Chosen on validation of ``scientific``: with a spread of .02 and any weights it found less than half."""


class SasRec(nn.Module):
    """Rows of the encoder against item embeddings."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.items = nn.Embedding(arch.num_items + 1, arch.width, padding_idx=0)
        nn.init.normal_(self.items.weight, std=SPREAD)
        with torch.no_grad():
            self.items.weight[0] = 0.0
        self.encoder = IntentEncoder(arch, DROPOUT)
        self.encoder.begin_as_mean()

    def forward(self, item: Tensor, kind: Tensor, gap: Tensor) -> Tensor:
        """Rows [B, T, d] of windows whose ``item`` counts from 1, 0 padding."""
        return self.encoder(item, kind, gap, self.items.weight)


class SoftmaxLoss(nn.Module):
    """The target among items drawn at random."""

    def __init__(self, model: SasRec) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        """Mean loss over the targets that have something before them."""
        told = batch.row >= 0
        query = self.model(batch.item, batch.kind, batch.gap)[batch.window[told], batch.row[told]]
        target = batch.target[told] + 1
        table = self.model.items.weight
        drawn = 1 + torch.randperm(len(table) - 1, device=query.device)[:NEGATIVES]
        right = (query * table[target]).sum(-1, keepdim=True)
        others = query @ table[drawn].T + math.log((len(table) - 1) / len(drawn))
        others = others.masked_fill(target.unsqueeze(1) == drawn, MASKED)
        scores = torch.cat([right, others], dim=1)
        return functional.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=query.device))


def sasrec(protocol: Protocol, arch: Architecture, model: ModelPlan, checkpoint: Path, threads: int) -> SasRec:
    """Train it by the generator's loop; of ``model`` it takes the window and the seed."""
    torch.set_num_threads(threads)
    torch.manual_seed(model.seed)
    some = protocol.validation[:JUDGED]

    def value(trained: SasRec) -> float:
        got = quality(best_of_all(trained, some, 50), [case.target for case in some])
        return got["recall_at_10"] + got["recall_at_50"]

    net = SasRec(arch)
    examples = Examples(protocol.train, protocol.buckets, model.window, model.local_events)
    Trainer(
        net,
        SoftmaxLoss(net),
        examples,
        value,
        EPOCHS,
        TARGETS,
        LEARNING_RATE,
        model.seed,
        patience=EPOCHS,
    ).run(checkpoint)
    return net.eval()


@torch.no_grad()
def best_of_all(model: SasRec, cases: Sequence[Case], keep: int, *, seen: bool = True) -> NDArray[np.int64]:
    """The ``keep`` best of all items [cases, keep], -1 padding; ``seen``: whether items of the
    window may be recalled."""
    model.eval()
    out = []
    for begin in range(0, len(cases), BATCH):
        some = cases[begin : begin + BATCH]
        longest = max(1, *(len(case.window) for case in some))
        item, kind = np.zeros((2, len(some), longest), np.int64)
        gap = np.zeros((len(some), longest), np.float32)
        for row, case in enumerate(some):
            if length := len(case.window):
                item[row, -length:] = case.window + 1
                kind[row, -length:] = case.kinds
                gap[row, longest - length + 1 :] = np.log1p(np.diff(case.times) / 3_600_000)
        rows = model(*map(torch.from_numpy, (item, kind, gap)))[:, -1]
        scores = rows @ model.items.weight[1:].T
        if not seen:
            for row, case in enumerate(some):
                scores[row, torch.from_numpy(case.window)] = MASKED
        top = scores.topk(min(keep, scores.shape[1]), dim=1)
        out.append(torch.where(top.values > MASKED / 2, top.indices, -1).numpy())
    return np.concatenate(out)
