"""The prompt encoder: what only the device knows, in one small network. Runs on the edge."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from offline.model.architecture import Architecture
from schemas.names import Kind

ITEM = 0.2
"""Spread of the code embeddings at the beginning, well above the other parts of an event."""


class PromptEncoder(nn.Module):
    """``schemas.graphs``: prompt_encoder.onnx. It carries its own code embeddings: a device has no item table."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.rows, self.width = arch.prompt_rows, arch.width
        self.bucket = nn.Embedding(arch.num_buckets, arch.width)
        self.clock = nn.Linear(4, arch.width)
        self.code_tables = nn.ModuleList(nn.Embedding(arch.codes, arch.width) for _ in range(arch.levels))
        self.kind = nn.Embedding(len(Kind) + 1, arch.width, padding_idx=0)
        self.age = nn.Linear(1, arch.width)
        # Without it the few events of a device drown in the bias, and the prompt learns to ignore them.
        self.norm = nn.LayerNorm(arch.width)
        self.event = nn.Linear(arch.width, arch.width)
        self.mix = nn.Linear(3 * arch.width, 2 * arch.width)
        self.out = nn.Linear(2 * arch.width, arch.prompt_rows * arch.width)

    def begin_with_items(self) -> None:
        """Weights with which an event is mostly its item: its age, a number without bound, would hide it."""
        for table in self.code_tables:
            assert isinstance(table, nn.Embedding)
            nn.init.normal_(table.weight, std=ITEM)
        nn.init.normal_(self.age.weight, std=0.02)
        nn.init.zeros_(self.age.bias)

    def forward(self, bucket: Tensor, clock: Tensor, codes: Tensor, kind: Tensor, age: Tensor) -> Tensor:
        """Prompt rows [B, P, d]. An event counts when its kind and its codes are known; none is a zero sum."""
        real = ((kind > 0) & (codes[:, :, 0] >= 0)).unsqueeze(-1).to(clock.dtype)
        event = self.kind(kind) + self.age(age.unsqueeze(-1))
        for level, table in enumerate(self.code_tables):
            event = event + table(codes[:, :, level].clamp(min=0))
        event = functional.gelu(self.event(self.norm(event))) * real
        pooled = event.sum(1) / real.sum(1).clamp(min=1.0)
        joined = torch.cat([self.bucket(bucket), self.clock(clock), pooled], dim=-1)
        return self.out(functional.gelu(self.mix(joined))).reshape(-1, self.rows, self.width)
