"""The same model run whole for every request: history encoded, neighbours found, prompt encoded, all of it live."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from online.case import Case
from online.encoders import intent_feed, neighbours, prompt_feed
from online.release import Release, load_encoders
from schemas.release import Manifest

REQUESTS, WARM = 200, 10
NEAR_ITEMS = 20_000
"""Rows of the made-up neighbour table: a window's lists are as different as in a real one."""


def model_cpu_ms(release: Release, manifest: Manifest, cases: Sequence[Case]) -> dict[str, float]:
    """Processor time of a request's model work, this process, one thread: all of it live, and the decoder alone."""
    model, codes = release.model, release.arrays["item_codes"]
    intent, prompt = load_encoders(release, manifest)
    draw = np.random.default_rng(3)
    rows = min(NEAR_ITEMS, model.num_items)
    near_items = draw.integers(0, model.num_items, (rows, model.neighbours)).astype(np.int32)
    near_scores = draw.random((rows, model.neighbours), np.float32)

    def whole(case: Case) -> None:
        state = case.state
        assert state is not None
        encoded = intent.run(intent_feed(model, state.items, state.kinds, state.times))[0]
        near = neighbours(model, near_items, near_scores, [number % rows for number in state.items])
        local = [(number, 1, state.watermark) for number in state.items[: model.local_events]]
        prompted = prompt.run(prompt_feed(model, codes, case.bucket, state.watermark, local))[0]
        last = np.ascontiguousarray(encoded[:, -model.state_rows :])
        release.decoder.run(release.decoder_feed(last, prompted, near, (case.limits.exclude, case.limits.allow)))

    return {
        "whole_model_cpu_ms": _cpu_ms(whole, cases),
        "decode_cpu_ms": _cpu_ms(lambda case: release.decoder.run(case.feed()), cases),
    }


def _cpu_ms(work: Callable[[Case], object], cases: Sequence[Case]) -> float:
    for case in cases[:WARM]:
        work(case)
    chosen = cases[:REQUESTS]
    begun = time.process_time()
    for case in chosen:
        work(case)
    return (time.process_time() - begun) / len(chosen) * 1000
