"""The sizes that fix the generator's weights and graphs."""

from __future__ import annotations

import msgspec

from schemas.plan import Plan
from schemas.release import Model

FIRST_WIDTH = 16
"""Beam at the first level; it doubles at each level after it."""
CONSIDERED = 2
"""Items for each place of the answer that the item head chooses from: the last cut is its own, not the codes' alone."""


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """Letters as in ``schemas.graphs``; ``vector_width`` is the width of the items' content vectors."""

    width: int
    layers: int
    heads: int
    window: int
    state_rows: int
    prompt_rows: int
    local_events: int
    levels: int
    codes: int
    num_items: int
    num_buckets: int
    vector_width: int
    k_max: int
    hidden: int = 256

    @property
    def beam(self) -> list[int]:
        """Beam width after each level: 16, 32, …, 2 · ``k_max``. The early levels are narrow, for they decide least."""
        widths = [min(FIRST_WIDTH << level, self.k_max) for level in range(self.levels - 1)]
        return [*widths, CONSIDERED * self.k_max]


def from_plan(plan: Plan, *, num_items: int, num_buckets: int, vector_width: int, codes: int) -> Architecture:
    """The architecture that the plan asks for, with the sizes that the data decide."""
    model = plan.model
    return Architecture(
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        window=model.window,
        state_rows=model.state_rows,
        prompt_rows=model.prompt_rows,
        local_events=model.local_events,
        levels=plan.index.levels,
        codes=codes,
        num_items=num_items,
        num_buckets=num_buckets,
        vector_width=vector_width,
        k_max=plan.online.k_max,
        hidden=2 * model.width,
    )


def release_sizes(
    arch: Architecture, *, neighbours: int, decay: float, weights: list[float], repeats: bool = True
) -> Model:
    """The sizes that every tier must agree on, as a release names them."""
    return Model(
        width=arch.width,
        window=arch.window,
        state_rows=arch.state_rows,
        prompt_rows=arch.prompt_rows,
        local_events=arch.local_events,
        levels=arch.levels,
        codes=arch.codes,
        num_items=arch.num_items,
        num_buckets=arch.num_buckets,
        neighbours=neighbours,
        neighbour_decay=decay,
        neighbour_repeats=repeats,
        k_max=arch.k_max,
        weights=weights,
    )
