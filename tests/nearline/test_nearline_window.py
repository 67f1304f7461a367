"""The window rule: its laws, over random streams with duplicates, ties and late events."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from nearline.window import fold
from schemas.event import MIN_AT_MS, Event
from schemas.names import Kind

KINDS = list(Kind)


def event(number: int) -> Event:
    """An id always stands for the same event; few distinct times, so that there are ties."""
    draw = random.Random(number)
    return Event(
        event_id=f"e{number}",
        user_id="u",
        item_id=f"i{draw.randrange(9)}",
        kind=draw.choice(KINDS),
        at=MIN_AT_MS + draw.randrange(6),
    )


streams = st.lists(st.integers(0, 30), max_size=60).map(lambda numbers: [event(number) for number in numbers])
sizes = st.integers(1, 12)


@given(streams, sizes)
def test_the_window_holds_the_newest_distinct_events(events: list[Event], n: int) -> None:
    window = fold(events, n)
    kept = [(one.at, one.event_id) for one in window]
    rest = {(one.at, one.event_id) for one in events} - set(kept)
    assert len(window) == min(n, len({one.event_id for one in events}))
    assert kept == sorted(set(kept), reverse=True)
    assert not rest or not kept or max(rest) < min(kept)


@given(streams, sizes, st.randoms())
def test_the_order_of_arrival_does_not_matter(events: list[Event], n: int, draw: random.Random) -> None:
    shuffled = draw.sample(events, len(events))
    assert fold(shuffled, n) == fold(events, n)


@given(streams, streams, sizes)
def test_the_fold_goes_on_from_its_own_result(before: list[Event], after: list[Event], n: int) -> None:
    so_far = fold(before, n)
    assert fold([*reversed(so_far), *after], n) == fold([*before, *after], n)


@given(streams, sizes)
def test_a_second_delivery_changes_nothing(events: list[Event], n: int) -> None:
    assert fold([*events, *events], n) == fold(events, n)


def test_of_two_events_with_one_id_the_first_to_arrive_counts() -> None:
    first = Event(event_id="e", user_id="u", item_id="a", kind=Kind.CLICK, at=MIN_AT_MS)
    second = Event(event_id="e", user_id="u", item_id="b", kind=Kind.CART, at=MIN_AT_MS + 5)
    (kept,) = fold([first, second], 3)
    assert (kept.item_id, kept.kind, kept.at) == ("a", "click", MIN_AT_MS)


def test_no_events_give_an_empty_window() -> None:
    assert fold([], 5) == []
