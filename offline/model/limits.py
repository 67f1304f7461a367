"""What a request excludes and allows, inside the beam: at every level, so that nothing ruled out takes a place.

A child of the last level is an item. One further up stands for all items below it, and takes no place when none of
them has an allowed category, or when all of them are excluded. (When some are excluded and only the others have no
allowed category it still takes one: that is not known without looking at each.)

Each rule costs nothing while no request of the batch has its list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from offline.model.intent_encoder import MASKED

WORD = 64
"""Categories of one word of bits."""
BITS = (*(1 << bit for bit in range(WORD - 1)), -(1 << (WORD - 1)))
"""As int64 has them."""


class Items(NamedTuple):
    """The arrays about items, as in ``schemas.graphs``."""

    codes: Tensor
    path: Tensor
    out: Tensor
    bias: Tensor
    category: Tensor


class Sets(NamedTuple):
    """The categories below each node: ``words[row[depth][node]]``, as in ``schemas.graphs``."""

    row: Sequence[Tensor]
    words: Tensor


class Limits:
    """Which items may be shown, and below which nodes there are such. ``exclude`` [B, X], ``allow`` [B, A] as in
    ``schemas.graphs``; ``offset`` are those of the trie's levels."""

    def __init__(self, exclude: Tensor, allow: Tensor, offset: Sequence[Tensor], items: Items, sets: Sets) -> None:
        num_items = items.bias.shape[0]
        self.offset, self.items, self.sets, self.allow = offset, items, sets, allow
        self.known = torch.where((exclude >= 0) & (exclude < num_items), exclude, num_items)
        self.some_excluded, self.some_allowed = (self.known < num_items).any(), (allow >= 0).any()
        self.bits = torch.tensor(BITS)  # here: the exporter takes no constant inside a condition

    def leaves(self, item: Tensor, score: Tensor) -> Tensor:
        """``score`` [B, n], ``MASKED`` where the ``item`` [B, n] may not be shown."""
        score = when(self.some_excluded, _but_excluded, score, item, self.known, self.items.bias)
        return when(self.some_allowed, _of_a_category, score, item, self.items.category, self.allow)

    def nodes(self, depth: int, child: Tensor, score: Tensor) -> Tensor:
        """``score`` [B, n], ``MASKED`` where there is nothing to show below ``child`` [B, n] (at ``depth`` + 1)."""
        below = self.offset[depth + 1 :]
        score = when(self.some_excluded, _but_all_excluded, score, child, self.known, self.items.path, *below)
        sets = self.sets.row[depth], self.sets.words
        return when(self.some_allowed, _some_of_a_category, score, child, *sets, self.allow, self.bits)


def when(asked: Tensor, rule: Callable[..., Tensor], given: Tensor, *about: Tensor) -> Tensor:
    """``rule(given, *about)``, of the shape and type of ``given``; ``given`` itself, for nothing, unless ``asked``."""
    if torch.compiler.is_exporting():
        return torch.cond(asked, rule, _as_it_is, (given, *about))
    return rule(given, *about) if asked else given


def _as_it_is(given: Tensor, *_about: Tensor) -> Tensor:
    return given.clone()


def take(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]``, written so that it becomes the cheapest operator: for numbers GatherElements, a tenth of
    Gather, which copies each as a block; for rows Gather, a part of GatherND."""
    if table.dim() == 1:
        return table.gather(0, index.flatten()).reshape(index.shape)
    return table.index_select(0, index.flatten()).reshape(*index.shape, *table.shape[1:])


def _but_excluded(score: Tensor, item: Tensor, known: Tensor, bias: Tensor) -> Tensor:
    # A table by item number with one place more, where padding goes: cheaper than comparing every pair.
    table = torch.zeros(known.shape[0], bias.shape[0] + 1, dtype=torch.bool)
    return torch.where(table.scatter(1, known, True).gather(1, item), MASKED, score)


def _but_all_excluded(score: Tensor, child: Tensor, known: Tensor, path: Tensor, *below: Tensor) -> Tensor:
    """``below`` are the offsets of the levels under the children's."""
    first, past = child, child + 1
    for offset in below:
        first, past = take(offset, first), take(offset, past)
    ordered = known.sort(dim=1).values
    new = torch.cat([torch.ones_like(ordered[:, :1], dtype=torch.bool), ordered[:, 1:] != ordered[:, :-1]], dim=1)
    counts = new & (ordered < below[-1][-1])  # withdrawn items, behind all leaves, are below no node
    node = take(path, torch.where(counts, ordered, 0))[:, :, path.shape[1] - len(below)]
    excluded = torch.zeros(known.shape[0], below[0].shape[0] - 1, dtype=torch.int64)
    return torch.where(excluded.scatter_add(1, node, counts.long()).gather(1, child) < past - first, score, MASKED)


def _of_a_category(score: Tensor, item: Tensor, category: Tensor, allow: Tensor) -> Tensor:
    everything = (allow < 0).all(dim=1, keepdim=True)
    may = (take(category, item).unsqueeze(-1) == allow.unsqueeze(1)).any(-1) | everything
    return torch.where(may, score, MASKED)


def _some_of_a_category(  # noqa: PLR0917
    score: Tensor, child: Tensor, row: Tensor, words: Tensor, allow: Tensor, bits: Tensor
) -> Tensor:
    end = words.shape[1] * WORD
    wanted = torch.zeros(allow.shape[0], end + 1, dtype=torch.bool)
    wanted = wanted.scatter(1, torch.where((allow >= 0) & (allow < end), allow, end), True)[:, :end]
    asked = (wanted.reshape(allow.shape[0], -1, WORD).long() * bits).sum(-1)
    asked = torch.where((allow < 0).all(dim=1, keepdim=True), -1, asked)  # every bit: every node has some category
    return torch.where(((take(words, take(row, child)) & asked.unsqueeze(1)) != 0).any(-1), score, MASKED)
