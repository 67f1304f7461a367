"""The decoder's weights: how the prompt joins, one head per code level, and the item head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from offline.model.architecture import Architecture


class LevelHead(nn.Module):
    """Scores of the next code, given the query and the codes before it."""

    def __init__(self, arch: Architecture, level: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(arch.width, arch.hidden)
        self.prefix = nn.ModuleList(nn.Embedding(arch.codes, arch.hidden) for _ in range(level))
        self.back = nn.Linear(arch.hidden, arch.width)
        self.norm = nn.LayerNorm(arch.width)
        self.out = nn.Linear(arch.width, arch.codes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, prefix: Sequence[Tensor]) -> Tensor:
        """``query`` [B, d], ``prefix`` an int64 [B, W] of each level before → scores [B, W, K]; W is 1 at the first."""
        hidden = self.query(query).unsqueeze(1)
        for table, code in zip(self.prefix, prefix, strict=True):
            hidden = hidden + table(code)
        row = query.unsqueeze(1) + self.back(self.dropout(functional.gelu(hidden)))
        return self.out(self.dropout(self.norm(row)))


class Decoder(nn.Module):
    """Everything that is learnt of the decoder; ``offline.model.beam`` walks the trie with it."""

    def __init__(self, arch: Architecture, dropout: float = 0.0) -> None:
        super().__init__()
        self.prompt = nn.Linear(arch.prompt_rows * arch.width, arch.width)
        self.gate = nn.Linear(2 * arch.width, arch.width)
        self.norm = nn.LayerNorm(arch.width)
        self.heads = nn.ModuleList(LevelHead(arch, level, dropout) for level in range(arch.levels))
        self.item_query = nn.Linear(arch.width, arch.width)
        self.dropout = nn.Dropout(dropout)

    def head(self, level: int) -> LevelHead:
        """The head of a level."""
        head = self.heads[level]
        assert isinstance(head, LevelHead)
        return head

    def join(self, intent: Tensor, prompt: Tensor) -> Tensor:
        """The query [B, d]: the newest row of ``intent`` [B, R, d], and as much of ``prompt`` [B, P, d] as a
        gate lets in."""
        state = intent[:, -1]
        hint = self.prompt(prompt.flatten(1))
        gate = torch.sigmoid(self.gate(torch.cat([state, hint], dim=-1)))
        return self.dropout(self.norm(state + gate * hint))
