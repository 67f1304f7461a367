"""States and lists of an ancestor, as the release that grew from it has them: other item numbers, and nothing else."""

from __future__ import annotations

import msgspec

from online.release import Release
from schemas.state import Candidates, IntentState


def state_of(release: Release, state: IntentState) -> IntentState:
    """The state by the release's numbers, without neighbours that are withdrawn; as it is when it is of no ancestor."""
    family = release.family
    if family is None or state.release not in family.ancestors:
        return state
    near = family.numbers(state.release, state.neighbour_items)
    kept = [pair for pair in zip(near, state.neighbour_scores, strict=False) if 0 <= pair[0] < family.num_live]
    return msgspec.structs.replace(
        state,
        release=release.id,
        items=family.numbers(state.release, state.items),
        neighbour_items=[number for number, _ in kept],
        neighbour_scores=[score for _, score in kept],
    )


def list_of(release: Release, listed: Candidates) -> Candidates:
    """The list by the release's numbers, without items that are withdrawn; as it is when it is of no ancestor."""
    family = release.family
    if family is None or listed.release not in family.ancestors or len(listed.items) != len(listed.scores):
        return listed
    items = family.numbers(listed.release, listed.items)
    kept = [pair for pair in zip(items, listed.scores, strict=True) if 0 <= pair[0] < family.num_live]
    return msgspec.structs.replace(
        listed, release=release.id, items=[number for number, _ in kept], scores=[score for _, score in kept]
    )
