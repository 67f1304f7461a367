"""What the generator learns from a batch: the codes of the target, and the target among other items."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from offline.model.generator import Generator
from offline.model.intent_encoder import MASKED
from offline.train.examples import Batch
from offline.train.near import NearScores

NEGATIVES = 1_024
FLOOR = 0.02
"""Added to a neighbour score before its logarithm."""
PROMPT_DROPOUT = 0.5
STATE_DROPOUT = 0.05
SMOOTHING = 0.05
SWAP_INPUT, SWAP_TARGET, NEAREST = 0.1, 0.2, 10


class Losses:
    """The training loss. ``nearest`` int64 [N, 10]: similar items, for swapping; ``trie`` as in ``schemas.graphs``."""

    def __init__(
        self, generator: Generator, trie: Mapping[str, np.ndarray], nearest: np.ndarray, near: NearScores
    ) -> None:
        self.near = near
        self.generator = generator
        self.nearest = torch.from_numpy(nearest.astype(np.int64))
        self.path = torch.from_numpy(trie["item_path"])
        self.children = [self._children(trie, level) for level in range(generator.arch.levels)]

    def _children(self, trie: Mapping[str, np.ndarray], level: int) -> Tensor:
        """Bool [nodes at this depth, K]: the codes that exist below a node."""
        offset, child = trie[f"offset_{level}"], trie[f"child_{level}"]
        table = torch.zeros(len(offset) - 1, self.generator.arch.codes, dtype=torch.bool)
        table[np.repeat(np.arange(len(offset) - 1), np.diff(offset)), child] = True
        return table

    def __call__(self, batch: Batch) -> Tensor:
        """Mean loss over the batch's targets."""
        generator = self.generator
        swapped = torch.where(batch.item > 0, self._swap(batch.item - 1, SWAP_INPUT) + 1, 0)
        used, item = torch.unique(swapped, return_inverse=True)
        table = generator.rows_in((used - 1).clamp(min=0)) * (used > 0).unsqueeze(1)
        rows = generator.intent_encoder(item + (used[0] > 0), batch.kind, batch.gap, _with_padding(table, used))
        query = generator.decoder.join(*self._inputs(rows, batch))
        return self.code_loss(query, self._swap(batch.target, SWAP_TARGET)) + self.item_loss(query, batch)

    def _inputs(self, rows: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Intent [n, 1, d] and prompt [n, P, d]; now and then the bucket's default rows, so that those are learnt."""
        generator = self.generator
        state = rows[batch.window, batch.row.clamp(min=0)].unsqueeze(1)
        gone = (batch.row < 0) | (torch.rand(len(batch.row)) < STATE_DROPOUT)
        state = torch.where(gone[:, None, None], generator.intent_defaults[batch.bucket][:, -1:], state)
        codes = torch.where(batch.local_item.unsqueeze(-1) >= 0, generator.codes[batch.local_item.clamp(min=0)], -1)
        prompt = generator.prompt_encoder(batch.bucket, batch.clock, codes, batch.local_kind, batch.local_age)
        silent = torch.rand(len(prompt)) < PROMPT_DROPOUT
        return state, torch.where(silent[:, None, None], generator.prompt_defaults[batch.bucket], prompt)

    def _swap(self, item: Tensor, share: float) -> Tensor:
        """Some items replaced by one of their nearest: cures overfitting where there is little data."""
        pick = torch.randint(0, self.nearest.shape[1], item.shape)
        other = self.nearest[item.clamp(min=0), pick]
        return torch.where(torch.rand(item.shape) < share, other, item)

    def code_loss(self, query: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of each code over the codes that exist after its prefix, slightly smoothed over those."""
        codes = self.generator.codes[target]
        total = query.new_zeros(())
        for level, head in enumerate(self.generator.decoder.heads):
            exists = self.children[level][self.path[target, level]]
            scores = head(query, codes[:, None, :level]).squeeze(1)
            chance = torch.log_softmax(torch.where(exists, scores, MASKED), dim=-1)
            own = chance.gather(1, codes[:, level : level + 1]).squeeze(1)
            spread = torch.where(exists, chance, 0.0).sum(1) / exists.sum(1)
            total = total - ((1 - SMOOTHING) * own + SMOOTHING * spread).mean()
        return total

    def item_loss(self, query: Tensor, batch: Batch) -> Tensor:
        """Softmax of the target over the items of its window and others drawn at random.

        The neighbour score is part of the sum, as it is when serving: the item head learns what it leaves open.
        """
        generator = self.generator
        drawn = torch.randperm(generator.arch.num_items)[:NEGATIVES]
        held = batch.item[batch.window] - 1
        fresh = last_before(batch) & (held != batch.target.unsqueeze(1))
        columns, place = torch.unique(
            torch.cat([batch.target, held.clamp(min=0).flatten(), drawn]), return_inverse=True
        )
        near = self.near(batch, columns.numpy())
        asked = generator.decoder.item_query(query)
        affinity = asked @ generator.rows_out(columns).T + generator.item_bias[columns]
        score = affinity + generator.near_weight * torch.log(near + FLOOR)
        right = score.gather(1, place[: len(held)].unsqueeze(1))
        window = score.gather(1, place[len(held) : -len(drawn)].reshape(held.shape)).masked_fill(~fresh, MASKED)
        others = score[:, place[-len(drawn) :]] + math.log(generator.arch.num_items / len(drawn))
        others = others.masked_fill(batch.target.unsqueeze(1) == drawn, MASKED)
        return -(right - torch.logsumexp(torch.cat([right, window, others], dim=1), dim=1, keepdim=True)).mean()


def last_before(batch: Batch) -> Tensor:
    """Bool [n, T]: the places of a target's window up to its row, each item once (where it was last)."""
    length = batch.item.shape[1]
    place = torch.arange(length)
    again = (batch.item.unsqueeze(2) == batch.item.unsqueeze(1)) & (place.unsqueeze(0) > place.unsqueeze(1))
    following = torch.where(again, place, length).amin(dim=2)
    row = batch.row.unsqueeze(1)
    return (place <= row) & (following[batch.window] > row) & (batch.item[batch.window] > 0)


def _with_padding(table: Tensor, used: Tensor) -> Tensor:
    """``table`` with a row 0 of zeros, where the used items do not begin with padding."""
    return table if used[0] == 0 else torch.cat([table.new_zeros(1, table.shape[1]), table])
