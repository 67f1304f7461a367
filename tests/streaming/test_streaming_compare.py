"""The plain job that the bench compares with keeps the same windows: its rule against the naive one."""

from __future__ import annotations

import random
from itertools import chain

import msgspec

from schemas.event import MIN_AT_MS, Event
from schemas.names import Kind
from schemas.window import decode_window
from streaming.bench.fold import Kept

KINDS = list(Kind)


def event(number: int, at: int) -> Event:
    return Event(event_id=f"e{number}", user_id="u", item_id=f"i{number % 7}", kind=KINDS[number % 4], at=at)


def naive(happened: list[Event | int], size: int) -> list[Event]:
    """Distinct events that were not forgotten, the newest first; a number is a request to forget up to then."""
    forgotten = max((one for one in happened if isinstance(one, int)), default=-1)
    events = {one.event_id: one for one in happened if isinstance(one, Event) and one.at > forgotten}
    return sorted(events.values(), key=lambda one: (one.at, one.event_id), reverse=True)[:size]


def test_the_plain_fold_is_the_naive_rule() -> None:
    draw = random.Random(31)
    for _ in range(500):
        size = draw.randint(1, 8)
        events = [event(number, MIN_AT_MS + draw.randrange(10)) for number in range(draw.randint(0, 25))]
        again = draw.sample(events, len(events) // 4)
        forgets: list[int] = [MIN_AT_MS + draw.randrange(8)] if draw.random() < 0.3 else []
        happened: list[Event | int] = [*chain(events, again), *forgets]
        draw.shuffle(happened)
        kept = Kept()
        for number, one in enumerate(happened):
            if isinstance(one, int):
                kept.forget(one, number)
            else:
                kept.add(one, number, size)
        expected = [(one.event_id, one.item_id, str(one.kind), one.at) for one in naive(happened, size)]
        raw = kept.window()
        assert (raw is None) == (not expected)
        if raw is not None:
            window = decode_window(raw)
            assert [msgspec.structs.astuple(one) for one in window.events] == expected
            assert window.arrived_at == len(happened) - 1
