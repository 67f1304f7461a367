"""The inputs of the prompt encoder against a naive reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.bundle import Sizes
from edge.features import features, newest
from schemas.event import Event
from schemas.names import Kind

NOW_MS = 1_772_359_500_123
SIZES = Sizes(width=4, prompt_rows=1, local_events=3, levels=2, codes=4, num_items=4, num_buckets=2)
CODES = {"a": [0, 1], "b": [0, 2], "c": [3, 0], "d": [3, 3]}

events = st.builds(
    Event,
    event_id=st.sampled_from([f"e{n}" for n in range(6)]),
    user_id=st.just("u"),
    item_id=st.sampled_from(["a", "b", "c", "d", "gone"]),
    kind=st.sampled_from(list(Kind)),
    at=st.integers(NOW_MS - 5, NOW_MS + 3),
)


def codes_of(item_id: str) -> np.ndarray | None:
    return np.array(CODES[item_id], np.int64) if item_id in CODES else None


def naive(given_events: list[Event]) -> list[Event]:
    """Insert one by one into a list kept sorted by hand; then cut its front off."""
    kept: list[Event] = []
    for event in given_events:
        if event.item_id not in CODES or any(event.event_id == other.event_id for other in kept):
            continue
        place = 0
        while place < len(kept) and (kept[place].at, kept[place].event_id) < (event.at, event.event_id):
            place += 1
        kept.insert(place, event)
    return kept[max(0, len(kept) - SIZES.local_events) :]


@given(st.lists(events, max_size=9))
def test_features_equal_the_naive_reference(given_events: list[Event]) -> None:
    made = features(given_events, codes_of, SIZES, 1, NOW_MS)
    kept = naive(given_events)
    padding = SIZES.local_events - len(kept)
    assert made.events == kept
    assert made.num_unknown == sum(event.item_id == "gone" for event in given_events)
    assert made.feeds["codes"].tolist() == [[[-1, -1]] * padding + [CODES[event.item_id] for event in kept]]
    assert made.feeds["kind"].tolist() == [[0] * padding + [list(Kind).index(event.kind) + 1 for event in kept]]
    ages = [math.log(1 + max(0, NOW_MS - event.at) / 3_600_000) for event in kept]
    assert made.feeds["age"][0] == pytest.approx([0.0] * padding + ages, abs=1e-7)
    assert made.feeds["bucket"].tolist() == [1]


@given(st.lists(events, max_size=9))
def test_keeping_one_by_one_is_keeping_all_at_once_without_late_repeats(given_events: list[Event]) -> None:
    """A runtime folds events as they come; that equals the rule on the whole list while no id is given twice."""
    unique = list({event.event_id: event for event in given_events}.values())
    folded: list[Event] = []
    for event in unique:
        folded = newest([*folded, event], 3)
    assert folded == newest(unique, 3)


def test_types_and_shapes_are_those_of_the_graph() -> None:
    feeds = features([], codes_of, SIZES, 0, NOW_MS).feeds
    assert {name: (array.dtype.name, array.shape) for name, array in feeds.items()} == {
        "bucket": ("int64", (1,)),
        "clock": ("float32", (1, 4)),
        "codes": ("int64", (1, 3, 2)),
        "kind": ("int64", (1, 3)),
        "age": ("float32", (1, 3)),
    }


def test_clock_is_sine_and_cosine_of_hour_and_weekday_in_utc() -> None:
    monday_six = 1_772_409_600_000 + 6 * 3_600_000  # 2026-03-02 06:00 UTC, a Monday
    clock = features([], codes_of, SIZES, 0, monday_six).feeds["clock"][0]
    week = 2 * math.pi * 0.25 / 7
    assert clock == pytest.approx([1.0, 0.0, math.sin(week), math.cos(week)], abs=1e-6)


@pytest.mark.parametrize(("count", "first"), [(0, None), (1, "e0"), (3, "e0"), (4, "e1")])
def test_newest_are_kept_at_none_one_most_and_one_more(count: int, first: str | None) -> None:
    given_events = [
        Event(event_id=f"e{n}", user_id="u", item_id="a", kind=Kind.CLICK, at=NOW_MS + n) for n in range(count)
    ]
    kept = features(given_events, codes_of, SIZES, 0, NOW_MS).events
    assert [event.event_id for event in kept[:1]] == ([first] if first else [])
    assert len(kept) == min(count, 3)
