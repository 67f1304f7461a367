"""How well a codebook is used, level by level; a collapsed one is refused."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from schemas.errors import DataError

Ints = NDArray[np.int64]
MIN_USE = 0.5
MIN_SPREAD, MIN_SPREAD_BELOW = 0.1, 0.01
"""Of the first level, and of those below it: what the first level tells apart well leaves small residuals, most of them
near zero, so that a healthy second level is uneven (0.03 on a catalogue of 4,000 items)."""


class LevelUse(msgspec.Struct, frozen=True):
    """One level, before collisions are mended.

    Measured over distinct vectors that the levels before do not tell apart: a level has nothing to say of the others.
    ``used`` codes of ``possible``, no more than there are such vectors; ``entropy_bits`` of their codes, and
    ``spread``, 2 ** entropy_bits / possible: 1 when all codes are used alike. ``unique`` is the share of all items that
    no other item shares the path to this level with.
    """

    used: int
    possible: int
    entropy_bits: float
    spread: float
    unique: float


def level_use(codes: Ints, level: int, num_codes: int, distinct: Ints) -> LevelUse:
    """The use of ``level`` by ``codes`` [N, L]; ``distinct`` are the places of items with distinct vectors."""
    unique = round(float(_alone(codes[:, : level + 1]).mean()), 4)
    told_apart = _alone(codes[distinct, :level])
    counts = np.bincount(codes[distinct[~told_apart], level], minlength=num_codes)
    possible = min(num_codes, int(counts.sum()))
    if possible == 0:
        return LevelUse(0, 0, 0.0, 1.0, unique)
    share = counts[counts > 0] / counts.sum()
    bits = float(-(share * np.log2(share)).sum()) + 0.0
    return LevelUse(len(share), possible, round(bits, 3), round(2**bits / possible, 4), unique)


def _alone(paths: Ints) -> NDArray[np.bool_]:
    """Whether no other row of ``paths`` [n, depth] is the same."""
    order = np.lexsort(paths.T[::-1]) if paths.shape[1] else np.arange(len(paths))
    differs = np.r_[True, (paths[order[1:]] != paths[order[:-1]]).any(1), True]
    alone = np.zeros(len(paths), bool)
    alone[order] = differs[1:] & differs[:-1]
    return alone


def refuse_collapse(levels: Sequence[LevelUse]) -> None:
    """Refuse a codebook that says next to nothing about the items.

    Raises:
        DataError: a level uses less than half of the codes it could, or uses them so unevenly that they tell the items
            apart no better than a tenth of them would (a hundredth, below the first level).
    """
    for number, level in enumerate(levels):
        if level.used < MIN_USE * level.possible:
            problem, value = f"collapsed: it uses less than {MIN_USE:.0%} of the codes it could", level.used
        elif level.spread < (least := MIN_SPREAD_BELOW if number else MIN_SPREAD):
            problem, value = f"collapsed: its codes are used too unevenly (spread below {least})", level.spread
        else:
            continue
        raise DataError(
            problem,
            where=f"codebook level {number} of {len(levels)}, {level.possible} codes possible",
            value=value,
            mend='Lower index.codes, set index.method = "kmeans", or look at the vectors: most may be alike.',
        )
