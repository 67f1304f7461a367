"""Inputs of the prompt encoder to measure it on: real items, random otherwise, the same every time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge.bundle import Bundle
from edge.features import Feeds, features
from schemas.event import Event
from schemas.names import Kind

NOW_MS = 1_772_359_500_123  # a Sunday, 10:05 UTC
WEEK_MS = 7 * 86_400_000


def probes(bundle: Bundle, item_ids: Sequence[str], count: int, seed: int = 0) -> list[Feeds]:
    """``count`` devices with 1 … E events of the last minutes, at any hour, in any bucket."""
    random = np.random.default_rng(seed)
    kinds = list(Kind)
    made: list[Feeds] = []
    for _ in range(count):
        now_ms = NOW_MS + int(random.integers(WEEK_MS))
        events = [
            Event(
                event_id=f"e{number}",
                user_id="probe",
                item_id=item_ids[int(random.integers(len(item_ids)))],
                kind=kinds[int(random.integers(len(kinds)))],
                at=now_ms - int(random.exponential(60_000)),
            )
            for number in range(random.integers(1, bundle.sizes.local_events + 1))
        ]
        bucket = int(random.integers(bundle.sizes.num_buckets))
        made.append(features(events, bundle.codes, bundle.sizes, bucket, now_ms).feeds)
    return made
