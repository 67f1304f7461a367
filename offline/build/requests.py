"""Real requests as the graphs' inputs (``schemas.graphs``): what users of the validation sessions would have asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offline.build.catalogue import Index
from offline.histories import Case
from offline.index.neighbours import window_neighbours
from schemas.graphs import DECODER, INTENT_ENCODER, PROMPT_ENCODER, clock_feature, gap_feature
from schemas.release import Model

Feeds = dict[str, NDArray[np.generic]]
NOTHING = np.full((1, 1), -1)


def real_requests(cases: Sequence[Case], index: Index, model: Model, num: int) -> list[dict[str, Feeds]]:
    """Up to ``num`` requests, by graph; the decoder's ``intent`` and ``prompt`` are zeros, for the encoders to fill.

    A user without any event is no such request: the intent encoder never sees one.
    """
    asked = [case for case in cases if len(case.window)]
    some = asked[:: max(1, len(asked) // num)][:num] if asked else []
    near = window_neighbours(some, index.lists, index.decay, model.neighbours)
    return [
        {
            INTENT_ENCODER: _window(case, model),
            PROMPT_ENCODER: _local(case, index, model),
            DECODER: {
                "intent": np.zeros((1, model.state_rows, model.width), np.float32),
                "prompt": np.zeros((1, model.prompt_rows, model.width), np.float32),
                "neighbour_item": near.items[row : row + 1].astype(np.int64),
                "neighbour_score": near.scores[row : row + 1].astype(np.float32),
                "exclude": NOTHING,
                "allow": NOTHING,
                "weights": np.asarray(model.weights, np.float32),
            },
        }
        for row, case in enumerate(some)
    ]


def _window(case: Case, model: Model) -> Feeds:
    shape = (1, model.window)
    item, kind, gap = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    length = min(len(case.window), model.window)
    item[0, -length:] = case.window[-length:] + 1
    kind[0, -length:] = case.kinds[-length:]
    gap[0, -length:] = [0.0, *map(gap_feature, np.diff(case.times[-length:]))]
    return {"item": item, "kind": kind, "gap": gap}


def _local(case: Case, index: Index, model: Model) -> Feeds:
    shape = (1, model.local_events)
    codes = np.full((*shape, model.levels), -1, np.int64)
    kind, age = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    local = case.local[-model.local_events :]
    for place, (item, what, at) in enumerate(local, model.local_events - len(local)):
        codes[0, place], kind[0, place] = index.codes[item], what
        age[0, place] = gap_feature(case.at - at)
    clock = np.array([clock_feature(case.at)], np.float32)
    return {"bucket": np.array([case.bucket]), "clock": clock, "codes": codes, "kind": kind, "age": age}
