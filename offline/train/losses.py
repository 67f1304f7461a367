"""What the generator learns from a batch: the codes of the target, and the target among other items."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from offline.model.beam import SMALLEST
from offline.model.decoder import Decoder
from offline.model.generator import Generator
from offline.model.intent_encoder import MASKED
from offline.train.examples import Batch

PROMPT_DROPOUT = 0.5
STATE_DROPOUT = 0.05
SMOOTHING = 0.05
SWAP_INPUT, SWAP_TARGET = 0.1, 0.2
TAUGHT_LEVELS = 2
"""Levels at which the item head teaches the code heads; further down too few of the drawn items share a prefix."""


class Losses(nn.Module):
    """The training loss, a scalar: codes, items, and codes as the item head would have them.

    ``nearest`` int64 [N, 10]: similar items, nearest first, for swapping; ``trie`` as in ``schemas.graphs``; of
    ``negatives`` items drawn at random each target is told apart.
    """

    nearest: Tensor
    path: Tensor

    def __init__(
        self, generator: Generator, trie: Mapping[str, np.ndarray], nearest: np.ndarray, negatives: int
    ) -> None:
        super().__init__()
        self.generator = generator
        self.negatives = negatives
        self.register_buffer("nearest", torch.from_numpy(nearest.astype(np.int64)), persistent=False)
        self.register_buffer("path", torch.from_numpy(trie["item_path"]), persistent=False)
        for level in range(generator.arch.levels):
            self.register_buffer(f"children_{level}", self._children(trie, level), persistent=False)

    def _children(self, trie: Mapping[str, np.ndarray], level: int) -> Tensor:
        """Bool [nodes at this depth, K]: the codes that exist below a node."""
        offset, child = trie[f"offset_{level}"], trie[f"child_{level}"]
        table = torch.zeros(len(offset) - 1, self.generator.arch.codes, dtype=torch.bool)
        table[np.repeat(np.arange(len(offset) - 1), np.diff(offset)), child] = True
        return table

    def forward(self, batch: Batch) -> Tensor:
        """Mean loss over the batch's targets."""
        swapped = torch.where(batch.item > 0, self._swap(batch.item - 1, SWAP_INPUT) + 1, 0)
        rows = self._rows(swapped, batch)
        query = self.generator.decoder.join(*self._inputs(rows, batch, (STATE_DROPOUT, PROMPT_DROPOUT)))
        target = self._swap(batch.target, SWAP_TARGET)
        items, columns, scores = self.item_loss(query, target, batch)
        return self.code_loss(query, target) + items + self.taught_loss(query, target, columns, scores.detach())

    def served(self, batch: Batch) -> Tensor:
        """The queries [n, d] of the batch's targets as they would be when served: nothing swapped, nothing left out."""
        return self.generator.decoder.join(*self._inputs(self._rows(batch.item, batch), batch, (0.0, 0.0)))

    def _rows(self, items: Tensor, batch: Batch) -> Tensor:
        """The intent encoder's rows [B, T, d] of windows of ``items`` [B, T] (item number + 1, 0 padding)."""
        used, item = torch.unique(items, return_inverse=True)
        table = self.generator.rows_in((used - 1).clamp(min=0)) * (used > 0).unsqueeze(1)
        return self.generator.intent_encoder(item + (used[0] > 0), batch.kind, batch.gap, _with_padding(table, used))

    def _inputs(self, rows: Tensor, batch: Batch, dropout: tuple[float, float]) -> tuple[Tensor, Tensor]:
        """Intent [n, 1, d] and prompt [n, P, d]; ``dropout`` has the shares of each that the bucket's default rows
        stand in for, so that those are learnt."""
        generator = self.generator
        state = rows[batch.window, batch.row.clamp(min=0)].unsqueeze(1)
        gone = (batch.row < 0) | (torch.rand(len(batch.row), device=rows.device) < dropout[0])
        state = torch.where(gone[:, None, None], generator.intent_defaults[batch.bucket][:, -1:], state)
        codes = torch.where(batch.local_item.unsqueeze(-1) >= 0, generator.codes[batch.local_item.clamp(min=0)], -1)
        prompt = generator.prompt_encoder(batch.bucket, batch.clock, codes, batch.local_kind, batch.local_age)
        silent = torch.rand(len(prompt), device=prompt.device) < dropout[1]
        return state, torch.where(silent[:, None, None], generator.prompt_defaults[batch.bucket], prompt)

    def _swap(self, item: Tensor, share: float) -> Tensor:
        """Some items replaced by one of their nearest, the nearer the likelier: cures overfitting where there is
        little data."""
        place = (torch.rand(item.shape, device=item.device) ** 2 * self.nearest.shape[1]).long()
        other = self.nearest[item.clamp(min=0), place]
        return torch.where(torch.rand(item.shape, device=item.device) < share, other, item)

    def code_loss(self, query: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of each code over the codes that exist after its prefix, slightly smoothed over those."""
        codes = self.generator.codes[target]
        total = query.new_zeros(())
        for level in range(codes.shape[1]):
            chance, exists = self._chance(level, query, target, self.generator.decoder)
            own = chance.gather(1, codes[:, level : level + 1]).squeeze(1)
            spread = torch.where(exists, chance, 0.0).sum(1) / exists.sum(1)
            total = total - ((1 - SMOOTHING) * own + SMOOTHING * spread).mean()
        return total

    def log_chances(self, query: Tensor, item: Tensor, heads: Decoder) -> Tensor:
        """Log-probability [n, L] of each code of ``item`` [n] after its own prefix, by the heads of ``heads``."""
        codes = self.generator.codes[item]
        levels = [self._chance(level, query, item, heads)[0] for level in range(codes.shape[1])]
        return torch.stack(levels, dim=1).gather(2, codes.unsqueeze(2)).squeeze(2)

    def _chance(self, level: int, query: Tensor, target: Tensor, heads: Decoder) -> tuple[Tensor, Tensor]:
        """Log-probabilities [n, K] of the next code after the target's own prefix, and which codes exist there."""
        exists = self.get_buffer(f"children_{level}")[self.path[target, level]]
        prefix = self.generator.codes[target][:, None, :level].unbind(2)
        scores = heads.head(level)(query, prefix).squeeze(1)
        return torch.log_softmax(torch.where(exists, scores, MASKED), dim=-1), exists

    def item_loss(self, query: Tensor, target: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Softmax of the target over the items of its window and others drawn at random.

        Returns: the loss, the items looked at [C], and their scores [n, C].
        """
        generator = self.generator
        drawn = torch.randperm(generator.arch.num_items, device=query.device)[: self.negatives]
        held = batch.item[batch.window] - 1
        fresh = last_before(batch) & (held != target.unsqueeze(1))
        columns, place = torch.unique(torch.cat([target, held.clamp(min=0).flatten(), drawn]), return_inverse=True)
        own, window, place = place.split([len(target), held.numel(), len(drawn)])
        score = generator.decoder.item_query(query) @ generator.rows_out(columns).T + generator.item_bias[columns]
        # How often each column counts, for each target: a drawn one for those that were not, the target and what the
        # window holds once, or once more. Its logarithm is added to the scores: to pick columns out would cost more.
        share = torch.zeros(len(columns) + 1, device=query.device)
        share[place] = generator.arch.num_items / len(drawn)
        spot = torch.where(fresh, window.reshape(held.shape), len(columns))
        log_count = share.log().clamp(min=MASKED).repeat(len(target), 1)
        log_count.scatter_(1, spot, (share[spot] + 1).log())
        log_count.scatter_(1, own.unsqueeze(1), 0)
        loss = (torch.logsumexp(score + log_count[:, :-1], dim=1) - score.gather(1, own.unsqueeze(1)).squeeze(1)).mean()
        return loss, columns, score

    def taught_loss(self, query: Tensor, target: Tensor, columns: Tensor, scores: Tensor) -> Tensor:
        """Cross-entropy of the first levels against the item head: what its softmax over ``columns`` says of each
        code. The beam then walks to where the items are that the item head wants."""
        codes = self.generator.codes
        chance = torch.softmax(scores, dim=-1)
        total = query.new_zeros(())
        for level in range(min(TAUGHT_LEVELS, codes.shape[1])):
            if level:  # only items that share the target's prefix
                same = codes[columns, level - 1] == codes[target, level - 1].unsqueeze(1)
                chance = torch.where(same, chance, 0.0)
            mass = chance.new_zeros(len(target), self.generator.arch.codes).index_add(1, codes[columns, level], chance)
            mass = mass / mass.sum(1, keepdim=True).clamp(min=SMALLEST)
            said, exists = self._chance(level, query, target, self.generator.decoder)
            total = total - torch.where(exists, mass * said, 0.0).sum(1).mean()
        return total


def last_before(batch: Batch) -> Tensor:
    """Bool [n, T]: the places of a target's window up to its row, each item once (where it was last)."""
    length = batch.item.shape[1]
    place = torch.arange(length, device=batch.item.device)
    again = (batch.item.unsqueeze(2) == batch.item.unsqueeze(1)) & (place.unsqueeze(0) > place.unsqueeze(1))
    following = torch.where(again, place, length).amin(dim=2)
    row = batch.row.unsqueeze(1)
    return (place <= row) & (following[batch.window] > row) & (batch.item[batch.window] > 0)


def _with_padding(table: Tensor, used: Tensor) -> Tensor:
    """``table`` with a row 0 of zeros, where the used items do not begin with padding."""
    return table if used[0] == 0 else torch.cat([table.new_zeros(1, table.shape[1]), table])
