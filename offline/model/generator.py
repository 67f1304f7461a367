"""The generator: the three graphs' modules and the item tables that they share."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from offline.model.architecture import Architecture
from offline.model.beam import Beam
from offline.model.decoder import Decoder
from offline.model.intent_encoder import IntentEncoder
from offline.model.prompt_encoder import PromptEncoder

FREE = 0.05
"""Spread of the items' free part at the beginning: enough to tell an item from its like."""


class Generator(nn.Module):
    """All that is trained. ``vectors`` [N, v] and ``codes`` [N, L] come from the semantic index and stay fixed.

    What an item is to the encoder (``item_in``) and to the item head (``item_out``) is the projection of its vector
    plus a free part; the encoder also adds the embeddings of its codes. Both tables are computed once, at export.
    """

    vectors: Tensor
    codes: Tensor

    def __init__(self, arch: Architecture, vectors: np.ndarray, codes: np.ndarray, dropout: float = 0.0) -> None:
        super().__init__()
        self.arch = arch
        self.register_buffer("vectors", torch.from_numpy(vectors.astype(np.float32)), persistent=False)
        self.register_buffer("codes", torch.from_numpy(codes.astype(np.int64)), persistent=False)
        self.free = nn.Embedding(arch.num_items, arch.width)
        self.code_tables = nn.ModuleList(nn.Embedding(arch.codes, arch.width) for _ in range(arch.levels))
        self.vector_in = nn.Linear(arch.vector_width, arch.width)
        self.vector_out = nn.Linear(arch.vector_width, arch.width)
        self.item_bias = nn.Parameter(torch.zeros(arch.num_items))
        self.intent_encoder = IntentEncoder(arch, dropout)
        self.prompt_encoder = PromptEncoder(arch)
        self.decoder = Decoder(arch, dropout)
        self.intent_defaults = nn.Parameter(torch.randn(arch.num_buckets, arch.state_rows, arch.width) * 0.02)
        self.prompt_defaults = nn.Parameter(torch.randn(arch.num_buckets, arch.prompt_rows, arch.width) * 0.02)
        self._begin()

    def _begin(self) -> None:
        """Begin as a neighbour method: the query is the window's mean beside its last item, and what goes in for an
        item is what comes out for it. Learning from there takes a fraction of the steps."""
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        nn.init.normal_(self.free.weight, std=FREE)
        self.prompt_encoder.begin_with_items()
        self.vector_out.load_state_dict(self.vector_in.state_dict())
        nn.init.eye_(self.decoder.item_query.weight)
        nn.init.zeros_(self.decoder.item_query.bias)
        self.intent_encoder.begin_as_mean()

    @property
    def beam(self) -> Beam:
        """The decoder's walk; it shares the weights of ``decoder`` and holds none of its own."""
        return Beam(self.decoder, self.arch).train(self.training)

    def rows_in(self, items: Tensor) -> Tensor:
        """What items [n] are to the intent encoder: [n, d]."""
        rows = self.vector_in(self.vectors[items]) + self.free(items)
        for level, table in enumerate(self.code_tables):
            rows = rows + table(self.codes[items, level])
        return rows

    def rows_out(self, items: Tensor) -> Tensor:
        """What the item head multiplies the query with: [n, d]."""
        return self.vector_out(self.vectors[items]) + self.free(items)

    def item_in(self) -> Tensor:
        """[N + 1, d]; row 0 is padding."""
        rows = self.rows_in(torch.arange(self.arch.num_items))
        return torch.cat([rows.new_zeros(1, rows.shape[1]), rows])

    def item_out(self) -> Tensor:
        """[N, d]."""
        return self.rows_out(torch.arange(self.arch.num_items))
