"""From local events, clock and bucket to the inputs of the prompt encoder. Pure functions.

This is the definition that every SDK reproduces; ``vectors/prompt.json`` holds examples of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.bundle import CodesOf, Sizes
from schemas.event import Event
from schemas.graphs import clock_feature, gap_feature

Feeds = dict[str, NDArray]

PADDING_CODE = -1


@dataclass(frozen=True)
class Features:
    """The graph's inputs for one device (B = 1), and the events they were made from, oldest first."""

    feeds: Feeds
    events: list[Event]
    num_unknown: int  # events dropped because the release does not have their item


def newest(events: Iterable[Event], limit: int) -> list[Event]:
    """The ``limit`` newest distinct events, newest last.

    The window's rule (``schemas.window``): distinct by ``event_id``, where the first one given wins; ordered by
    (at, event_id).
    """
    distinct: dict[str, Event] = {}
    for event in events:
        distinct.setdefault(event.event_id, event)
    ordered = sorted(distinct.values(), key=lambda event: (event.at, event.event_id))
    return ordered[-limit:]


def features(events: Iterable[Event], codes_of: CodesOf, sizes: Sizes, bucket: int, now_ms: int) -> Features:
    """The inputs of ``prompt_encoder.onnx``: shapes and types as in ``schemas.graphs``.

    Events of unknown items are dropped before the newest E are taken, so that they don't push out known ones.
    Fewer than E events are padded on the left. The age of an event later than ``now_ms`` counts as zero.

    Args:
        events: one user's local events, in order of arrival.
        codes_of: the codes of an item, or None.
        sizes: of the prompt encoder.
        bucket: number of a profile bucket that the release has.
        now_ms: wall time of the prompt.
    """
    given = list(events)
    found = {event.item_id: codes_of(event.item_id) for event in given}
    item_codes = {item_id: codes for item_id, codes in found.items() if codes is not None}
    known = [event for event in given if event.item_id in item_codes]
    kept = newest(known, sizes.local_events)
    shape = (1, sizes.local_events)
    codes = np.full((*shape, sizes.levels), PADDING_CODE, np.int64)
    kind = np.zeros(shape, np.int64)
    age = np.zeros(shape, np.float32)
    for position, event in enumerate(kept, start=sizes.local_events - len(kept)):
        codes[0, position] = item_codes[event.item_id]
        kind[0, position] = event.kind.number
        age[0, position] = gap_feature(now_ms - event.at)
    feeds: Feeds = {
        "bucket": np.array([bucket], np.int64),
        "clock": np.array([clock_feature(now_ms)], np.float32),
        "codes": codes,
        "kind": kind,
        "age": age,
    }
    return Features(feeds, kept, len(given) - len(known))
