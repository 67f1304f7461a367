"""The intent encoder: a causal transformer over a user's window. Runs near-line."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from offline.model.architecture import Architecture
from schemas.names import Kind

MASKED = -1e9
"""Added to a score that must not count. Finite, so that a row with nothing left gives numbers, not NaN."""

CALM = 0.1
"""Scale of the weights that should do little at the beginning."""


class Block(nn.Module):
    """Pre-norm attention and feed-forward, with one learnt bias per head and distance."""

    def __init__(self, width: int, heads: int, window: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.window = window
        self.distance = nn.Parameter(torch.zeros(heads, window))
        self.norm_attention = nn.LayerNorm(width)
        self.norm_forward = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, distance: Tensor, mask: Tensor) -> Tensor:
        """``x`` [B, T, d], ``distance`` int64 [T, T] in 0 … window - 1, ``mask`` [B, 1, T, T] added → [B, T, d]."""
        return self.mix(x, *self.parts(x), distance, mask)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of each row, [B, heads, T, d / heads]: they depend on nothing but the row."""
        batch, length, width = x.shape
        query, key, value = (
            part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.query_key_value(self.norm_attention(x)).chunk(3, dim=-1)
        )
        return query, key, value

    def mix(  # noqa: PLR0917
        self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, distance: Tensor, mask: Tensor
    ) -> Tensor:
        """Rows ``x`` [B, n, d] with what they see, ``key`` and ``value`` of S rows; ``distance`` [n, S]."""
        batch, length, width = x.shape
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads)
        weights = torch.softmax(scores + self.distance[:, distance] + mask, dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.dropout(self.out(mixed))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm_forward(x)))))


class IntentEncoder(nn.Module):
    """``schemas.graphs``: intent_encoder.onnx. Positions are relative: the rows do not depend on the padding."""

    def __init__(self, arch: Architecture, dropout: float = 0.0) -> None:
        super().__init__()
        self.window = arch.window
        self.kind = nn.Embedding(len(Kind) + 1, arch.width, padding_idx=0)
        self.gap = nn.Linear(1, arch.width)
        self.norm_in = nn.LayerNorm(arch.width)
        self.norm_out = nn.LayerNorm(arch.width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(arch.width, arch.heads, arch.window, dropout) for _ in range(arch.layers))

    def begin_as_mean(self) -> None:
        """Weights with which every row is its own item and the mean of the window up to it."""
        nn.init.zeros_(self.gap.weight)
        nn.init.zeros_(self.gap.bias)
        for block in self.blocks:
            assert isinstance(block, Block)
            width = block.out.weight.shape[0]
            with torch.no_grad():
                block.query_key_value.weight[: 2 * width] *= CALM
                block.query_key_value.bias.zero_()
            nn.init.eye_(block.query_key_value.weight[2 * width :])
            nn.init.eye_(block.out.weight)
            nn.init.zeros_(block.out.bias)
            with torch.no_grad():
                block.down.weight *= CALM

    def inputs(self, item: Tensor, kind: Tensor, gap: Tensor, item_in: Tensor) -> Tensor:
        """What goes into the first block: [B, T, d]."""
        said = functional.embedding(item, item_in) + self.kind(kind) + self.gap(gap.unsqueeze(-1))
        return self.dropout(self.norm_in(said))

    def forward(self, item: Tensor, kind: Tensor, gap: Tensor, item_in: Tensor) -> Tensor:
        """Rows [B, T, d], oldest first; rows of padding are zero."""
        real = item > 0
        x = self.inputs(item, kind, gap, item_in)
        place = torch.arange(item.shape[1], device=item.device)
        ago = place.unsqueeze(1) - place.unsqueeze(0)
        seen = (ago >= 0) & (ago < self.window) & real[:, None, None, :]
        mask = torch.where(seen, 0.0, MASKED)
        distance = ago.clamp(0, self.window - 1)
        for block in self.blocks:
            x = block(x, distance, mask)
        return self.norm_out(x) * real.unsqueeze(-1)
