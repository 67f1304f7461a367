"""Alignment: the code heads learn what users preferred, by direct preference optimisation (DPO) on semantic IDs.

Rafailov et al., 2023: for a winner w and a loser l of the same request the loss is
``-log σ(β · [(log π(w) - log π(l)) - (log ρ(w) - log ρ(l))])``, with ρ a frozen copy of the heads before. Codes that
both share are left out: they say nothing about the preference, and pushing the loser down would push the winner's own
prefix.

Only the code heads learn. What they are asked with (the intent rows, the prompt) and the item head stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from offline.model.decoder import Decoder
from offline.model.generator import Generator
from offline.train.examples import Examples
from offline.train.losses import Losses
from offline.train.pairs import Pairs, find_pairs
from offline.train.trainer import Aligned
from schemas import cli

MIN_PAIRS = 500
"""Fewer say too little about anybody's taste."""
MOST_PAIRS = 100_000
"""Of a pass."""
PASSES = 3
BATCH = 256
BETA = 0.1
LEARNING_RATE = 5e-4
STREAM = 1_000_000
"""Of the random numbers: none of training's."""


def align(losses: Losses, examples: Examples, value: Callable[[Generator], float], seed: int) -> Aligned:
    """Align the generator of ``losses`` if its histories hold enough pairs.

    The best pass is kept if ``value`` (higher is better) finds it better than no alignment; else every weight is as it
    was. The same inputs and threads give the same bits.
    """
    pairs = find_pairs(examples.histories, examples.window)
    if len(pairs) < MIN_PAIRS:
        return Aligned("no pairs", len(pairs))
    generator = losses.generator.eval()
    heads = generator.decoder.heads
    best, reference = copy.deepcopy(heads.state_dict()), copy.deepcopy(generator.decoder).requires_grad_(False)
    values = [value(generator)]
    optimiser = torch.optim.AdamW(heads.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    steps = -(-min(len(pairs), MOST_PAIRS) // BATCH)
    with cli.bar() as bar:
        task = bar.add_task("align", total=PASSES * steps)
        for number in range(PASSES):
            rng = np.random.default_rng((seed, STREAM + number))
            order = rng.permutation(len(pairs))[:MOST_PAIRS]
            for some in np.array_split(order, steps):
                _step(losses, reference, examples, pairs.only(some), optimiser, rng)
                bar.advance(task)
            values.append(value(generator.eval()))
            if values[-1] > max(values[:-1]):
                best = copy.deepcopy(heads.state_dict())
    heads.load_state_dict(best)
    kept = max(values) > values[0]
    return Aligned("kept" if kept else "not kept", len(pairs), [round(one, 5) for one in values])


def _step(  # noqa: PLR0917 — what a step is made of
    losses: Losses,
    reference: Decoder,
    examples: Examples,
    pairs: Pairs,
    optimiser: torch.optim.Optimizer,
    rng: np.random.Generator,
) -> None:
    ends = np.maximum(pairs.place, examples.histories.start[examples.user[pairs.place]] + 1)
    with torch.no_grad():
        query = losses.served(examples.asked(ends, np.arange(len(pairs)), pairs.place, rng))
    optimiser.zero_grad(set_to_none=True)
    preference_loss(losses, reference, query, torch.from_numpy(pairs.winner), torch.from_numpy(pairs.loser)).backward()
    optimiser.step()


def preference_loss(losses: Losses, reference: Decoder, query: Tensor, winner: Tensor, loser: Tensor) -> Tensor:
    """The mean loss of pairs: ``query`` [n, d], items ``winner`` and ``loser`` [n]; ``reference``: the frozen copy."""
    codes = losses.generator.codes
    apart = (codes[winner] != codes[loser]).cumsum(1) > 0  # [n, L]: from the first code that differs on

    def margin(heads: Decoder) -> Tensor:
        gap = losses.log_chances(query, winner, heads) - losses.log_chances(query, loser, heads)
        return torch.where(apart, gap, 0.0).sum(1)

    with torch.no_grad():
        before = margin(reference)
    return -functional.logsigmoid(BETA * (margin(losses.generator.decoder) - before)).mean()
