"""Items that nobody has taken yet: what is said of them must stand in for what training could not teach.

A softmax trains such items only as the wrong answer, so that they never get near a list, however well their words fit.
After training they keep what follows from their vectors alone, and a lift: as much as costs hardly anything on
validation, so that they come where the others' scores are close.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from offline.model.generator import Generator

LIFTS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
"""Tried in this order, in units of the item score (log-odds); the first that costs too much ends it."""
MOST_LOSS = 0.005
"""Share of the value on validation that may go."""


def lift_cold(generator: Generator, bought: NDArray[np.int64], value: Callable[[Generator], float]) -> float:
    """Change the generator's items without a training event (``bought`` [N] is zero); returns the lift.

    ``value`` judges the generator on validation (higher is better).
    """
    cold = torch.from_numpy(bought == 0)
    if not cold.any() or cold.all():
        return 0.0
    with torch.no_grad():
        generator.free.weight[cold] = 0.0
        level = generator.item_bias[~cold].mean()
        generator.item_bias[cold] = level
        least = (1 - MOST_LOSS) * value(generator)
        chosen = 0.0
        for lift in LIFTS:
            generator.item_bias[cold] = level + lift
            if value(generator) < least:
                break
            chosen = lift
        generator.item_bias[cold] = level + chosen
    return chosen
