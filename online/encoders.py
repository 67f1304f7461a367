"""What the other tiers do beforehand, done here and now: to time it when a release is loaded, and to compare."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from online.graph import Array
from schemas.graphs import clock_feature, gap_feature
from schemas.release import Model


def intent_feed(model: Model, items: Sequence[int], kinds: Sequence[int], times: Sequence[int]) -> dict[str, Array]:
    """Inputs of the intent encoder for one window, newest first as a state holds it (``schemas.graphs``)."""
    count = min(len(items), model.window)
    item = np.zeros((1, model.window), np.int64)
    kind = np.zeros((1, model.window), np.int64)
    gap = np.zeros((1, model.window), np.float32)
    if count:
        at = list(reversed(times[:count]))
        item[0, -count:] = np.asarray(items[:count][::-1]) + 1
        kind[0, -count:] = kinds[:count][::-1]
        gap[0, -count:] = [0.0, *(gap_feature(b - a) for a, b in pairwise(at))]
    return {"item": item, "kind": kind, "gap": gap}


def prompt_feed(
    model: Model, item_codes: Array, bucket: int, now_ms: int, local: Sequence[tuple[int, int, int]]
) -> dict[str, Array]:
    """Inputs of the prompt encoder. ``local`` are (item number, kind, time in ms), oldest first."""
    codes = np.full((1, model.local_events, model.levels), -1, np.int64)
    kind = np.zeros((1, model.local_events), np.int64)
    age = np.zeros((1, model.local_events), np.float32)
    newest = local[-model.local_events :]
    for place, (number, kind_number, at) in enumerate(newest, start=model.local_events - len(newest)):
        codes[0, place] = item_codes[number]
        kind[0, place] = kind_number
        age[0, place] = gap_feature(now_ms - at)
    clock = np.array([clock_feature(now_ms)], np.float32)
    return {"bucket": np.array([bucket], np.int64), "clock": clock, "codes": codes, "kind": kind, "age": age}


def neighbours(model: Model, near_items: Array, near_scores: Array, items: Sequence[int]) -> tuple[Array, Array]:
    """The window's neighbours: each event's list, weighted ``neighbour_decay ** p`` for the p-th newest, summed.

    Returns item numbers int64 [1, M], best first, -1 padding, and their scores float32 [1, M].
    """
    item = np.full((1, model.neighbours), -1, np.int64)
    score = np.zeros((1, model.neighbours), np.float32)
    window = np.asarray(items, np.int64)
    weights = model.neighbour_decay ** np.arange(len(window))
    near = near_items[window].ravel()
    mass = (near_scores[window] * weights[:, None]).ravel()
    numbers, where = np.unique(near[near >= 0], return_inverse=True)
    sums = np.bincount(where, mass[near >= 0], minlength=len(numbers))
    if not model.neighbour_repeats:
        other = ~np.isin(numbers, window)
        numbers, sums = numbers[other], sums[other]
    best = np.argsort(-sums, kind="stable")[: model.neighbours]
    item[0, : len(best)], score[0, : len(best)] = numbers[best], sums[best]
    return item, score
