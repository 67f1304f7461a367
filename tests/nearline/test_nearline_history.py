"""The seam between offline history and the stream: no gap, nothing counted twice, in any order."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from nearline.history import Tail, is_forgotten
from nearline.window import fold
from schemas.event import Event, decode_event, encode_event
from schemas.names import Kind

AT = 1_500_000_000_000
numbers = st.integers(0, 39)


def event(number: int) -> Event:
    """Two users, ties of four at a time, ids in another order than times."""
    return Event(
        event_id=f"e{number * 7 % 40}",
        user_id=f"u{number % 2}",
        item_id=f"i{number}",
        kind=Kind.CLICK,
        at=AT + number // 8,
    )


def naive(events: list[Event], n: int, forgotten: dict[str, int]) -> dict[str, list[str]]:
    """Everything in one list: distinct ids, newest first, cut."""
    windows: dict[str, list[str]] = {}
    for user in sorted({one.user_id for one in events}):
        mine = {one.event_id: one for one in events if one.user_id == user and one.at > forgotten.get(user, 0)}
        ordered = sorted(mine.values(), key=lambda one: (one.at, one.event_id))
        windows[user] = [one.event_id for one in reversed(ordered)][:n]
    return windows


def send(history: list[Event], n: int, forgotten: dict[str, int]) -> list[Event]:
    tail = Tail(n)
    for one in history:
        if not is_forgotten(one, forgotten):
            tail.add(one, encode_event(one))
    sent = list(tail)
    assert len(sent) == len(tail)
    assert [(one.user_id, one.at) for one in map(decode_event, (raw for _, _, raw in sent))] == [
        one[:2] for one in sent
    ]
    return [decode_event(raw) for _, _, raw in sent]


@settings(max_examples=400)
@given(
    history=st.lists(numbers, max_size=60),
    live=st.lists(numbers, max_size=60),
    n=st.integers(1, 9),
    forgotten=st.dictionaries(st.sampled_from(["u0", "u1"]), st.integers(AT - 1, AT + 5)),
    seed=st.integers(0, 9),
)
def test_the_windows_are_those_of_all_events_at_once(
    history: list[int], live: list[int], n: int, forgotten: dict[str, int], seed: int
) -> None:
    """The stream drops what was forgotten too, so live events are taken as they come."""
    old, new = [event(one) for one in history], [event(one) for one in live]
    sent = send(old, n, forgotten)
    arrivals = [*sent, *(one for one in new if not is_forgotten(one, forgotten))]
    random.Random(seed).shuffle(arrivals)  # before, after or between: the stream need not wait
    expected = naive([*old, *new], n, forgotten)
    for user, ids in expected.items():
        assert [one.event_id for one in fold((one for one in arrivals if one.user_id == user), n)] == ids


def test_no_more_than_the_window_is_sent() -> None:
    assert len(send([event(number) for number in range(40)] * 3, 5, {})) == 10


def test_of_equal_ids_the_first_counts() -> None:
    first, second = event(1), event(9)
    same = Event(event_id=first.event_id, user_id=first.user_id, item_id="other", kind=Kind.CART, at=second.at)
    assert send([first, same], 3, {}) == [first]
