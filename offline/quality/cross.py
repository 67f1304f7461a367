"""Cross-attention over the rows of the window in the place of one row: what it would cost, and give. Bench only.

Both decoders have the same encoder, prompt, item head and training. The product's heads see the joined newest row;
here each level first looks back at the newest ``ROWS`` rows.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from offline.index.codes import build_codes
from offline.index.neighbours import nearest_items
from offline.index.trie import sid_order, trie_arrays
from offline.index.vectors import item_vectors
from offline.index.words import word_matrix
from offline.metrics import quality
from offline.model.architecture import Architecture, from_plan
from offline.model.decoder import Decoder, LevelHead
from offline.model.generator import Generator
from offline.model.intent_encoder import MASKED
from offline.quality.protocol import Protocol
from offline.recall import Recaller, choose_weights
from offline.train.examples import Batch, Examples
from offline.train.fit import DROPOUT, Material, no_neighbours, validation_value
from offline.train.losses import Losses
from offline.train.trainer import Trainer
from schemas.plan import Plan

ROWS = 30
CODES_ONLY = (1.0, 0.0, 0.0, 1.0)
JUDGED_BY = ("recall_at_10", "ndcg_at_10")
NEAREST = 10
MODES = {"seen_kept": True, "seen_removed": False}
HALF_BYTES = 2


class CrossHead(nn.Module):
    """A level's head that looks at the rows first: attention, then the product's own head on what came of it."""

    def __init__(self, arch: Architecture, level: int, dropout: float) -> None:
        super().__init__()
        self.width, self.heads = arch.width, arch.heads
        self.prefix = nn.ModuleList(nn.Embedding(arch.codes, arch.width) for _ in range(level))
        self.ask, self.back = nn.Linear(arch.width, arch.width), nn.Linear(arch.width, arch.width)
        self.key_value = nn.Linear(arch.width, 2 * arch.width)
        self.norm = nn.LayerNorm(arch.width)
        self.dropout = nn.Dropout(dropout)
        self.head = EachRowHead(arch, level, dropout)

    def forward(self, query: Tensor, prefix: Sequence[Tensor]) -> Tensor:
        """``query`` [B, (1 + R) · d]: the joined row, then the rows (zero: padding) → scores [B, W, K]."""
        parts = query.reshape(len(query), -1, self.width)
        at, memory = parts[:, :1], parts[:, 1:]
        for table, code in zip(self.prefix, prefix, strict=True):
            at = at + table(code)
        key, value = self.key_value(memory).chunk(2, dim=-1)
        mask = torch.where((memory != 0).any(-1), 0.0, MASKED)[:, None, None]
        asked, key, value = (self._split(rows) for rows in (self.ask(self.norm(at)), key, value))
        seen = functional.scaled_dot_product_attention(asked, key, value, attn_mask=mask)
        at = at + self.dropout(self.back(seen.transpose(1, 2).flatten(2)))
        return self.head(at, prefix)

    def _split(self, rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:2], self.heads, -1).transpose(1, 2)


class EachRowHead(LevelHead):
    """The product's head with a query of its own for each place of the beam."""

    def forward(self, query: Tensor, prefix: Sequence[Tensor]) -> Tensor:
        """``query`` [B, W, d] → scores [B, W, K]."""
        flat = super().forward(query.flatten(0, 1), [code.flatten().unsqueeze(1) for code in prefix])
        return flat.reshape(*query.shape[:2], -1)


class FirstPart(nn.Linear):
    """Of a query with rows behind it only the joined row."""

    def forward(self, input: Tensor) -> Tensor:
        """[B, (1 + R) · d] → [B, d]."""
        return super().forward(input[:, : self.in_features])


class CrossDecoder(Decoder):
    """Takes the place of ``Decoder``: its query carries the rows behind it, flat."""

    def __init__(self, arch: Architecture, dropout: float) -> None:
        super().__init__(arch, dropout)
        self.heads = nn.ModuleList(CrossHead(arch, level, dropout) for level in range(arch.levels))
        self.item_query = FirstPart(arch.width, arch.width)
        nn.init.eye_(self.item_query.weight)
        nn.init.zeros_(self.item_query.bias)

    def head(self, level: int) -> nn.Module:  # type: ignore[override]
        """The head of a level."""
        return self.heads[level]

    def join(self, intent: Tensor, prompt: Tensor) -> Tensor:
        """[B, (1 + R) · d]."""
        return torch.cat([super().join(intent, prompt), intent.flatten(1)], dim=1)


class CrossLosses(Losses):
    """The same losses; the state is the newest rows up to the target's own."""

    def _inputs(self, rows: Tensor, batch: Batch, dropout: tuple[float, float]) -> tuple[Tensor, Tensor]:
        state, prompt = super()._inputs(rows, batch, dropout)
        ago = torch.arange(min(ROWS, rows.shape[1]) - 1, 0, -1)
        place = batch.row[:, None] - ago
        before = rows[batch.window[:, None], place.clamp(min=0)] * (place >= 0).unsqueeze(-1)
        own = rows[batch.window, batch.row.clamp(min=0)]
        # Where the bucket's default row stands in for the state, nothing is known of the rows before either.
        kept = (state[:, 0] == own).all(-1)[:, None, None]
        return torch.cat([before * kept, state], dim=1), prompt


@dataclass(frozen=True)
class Trained:
    """What both are trained on, and where the checkpoints go."""

    plan: Plan
    protocol: Protocol
    material: Material
    folder: Path


def compare(protocol: Protocol, plan: Plan, folder: Path, threads: int) -> dict[str, Any]:
    """Train both decoders on ``protocol`` and judge them on its test cases, without neighbours."""
    words = word_matrix(protocol.texts, protocol.labels)
    vectors = item_vectors(protocol.train, [words], plan.index.vector_width, plan.model.seed)
    book = build_codes(vectors, plan.index.levels, plan.index.codes, plan.model.seed, plan.index.method)
    order = sid_order(book.codes)
    protocol, vectors, codes = protocol.renumbered(order), vectors[order], book.codes[order]
    category = np.zeros(len(codes), np.int64)
    near = nearest_items(vectors, NEAREST)
    parts = (protocol.train, protocol.validation, protocol.buckets)
    material = Material(vectors, codes, trie_arrays(codes), near, category, *parts)
    arch = from_plan(
        plan,
        num_items=len(codes),
        num_buckets=len(protocol.buckets.names),
        vector_width=vectors.shape[1],
        codes=book.num_codes,
    )
    many = msgspec.structs.replace(arch, state_rows=ROWS)
    torch.set_num_threads(threads)
    on = Trained(plan, protocol, material, folder)
    return {"heads": _judged(arch, on), "cross_attention": _judged(many, on)}


def _judged(arch: Architecture, on: Trained) -> dict[str, Any]:
    plan, protocol, material = on.plan, on.protocol, on.material
    torch.manual_seed(plan.model.seed)
    net = Generator(arch, material.vectors, material.codes, DROPOUT)
    cross = arch.state_rows > 1
    if cross:
        net.decoder = CrossDecoder(arch, DROPOUT)
    losses = (CrossLosses if cross else Losses)(net, material.trie, material.nearest, plan.model.negatives)
    model = plan.model
    examples = Examples(material.train, material.buckets, model.window, model.local_events)
    settings = (model.epochs, model.batch_size, model.learning_rate, model.seed)
    begun = _cpu_s()
    Trainer(net, losses, examples, lambda trained: validation_value(trained, material), *settings).run(
        on.folder / ("cross" if cross else "heads")
    )
    out: dict[str, Any] = {
        "train_cpu_s": round(_cpu_s() - begun, 1),
        "state_bytes": arch.state_rows * arch.width * HALF_BYTES,
        "mflop": round(_flops(net.eval(), material) / 1e6, 2),
        "decoder_parameters": sum(one.numel() for one in net.decoder.parameters()),
    }
    recaller = Recaller(net, material.trie, material.category)
    for mode, seen in MODES.items():
        some, cases = protocol.validation, protocol.test
        weights, _ = choose_weights(recaller.candidates(some, no_neighbours(len(some)), seen=seen), some, JUDGED_BY)
        found = recaller.candidates(cases, no_neighbours(len(cases)), seen=seen)
        out[mode] = _figures(recaller.lists(found, weights), cases) | {"weights": weights}
        out[mode]["codes_only"] = _figures(recaller.lists(found, CODES_ONLY), cases)
    return out


def _figures(lists: NDArray[np.int64], cases: list[Any]) -> dict[str, Any]:
    got = quality(lists, [case.target for case in cases])
    return {name: round(got[name], 5) for name in ("recall_at_10", "ndcg_at_10", "recall_at_50")}


def _flops(net: Generator, material: Material) -> int:
    """Of one decode without neighbours."""
    arch = net.arch
    recaller = Recaller(net, material.trie, material.category)
    none = torch.full((1, 1), -1)
    rows, prompt = torch.randn(1, arch.state_rows, arch.width), torch.randn(1, arch.prompt_rows, arch.width)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        net.beam(rows, prompt, none, torch.zeros(1, 1), none, none, torch.ones(4), *recaller.arrays)
    return counter.get_total_flops()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
