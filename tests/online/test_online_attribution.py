"""What led to a click."""

from __future__ import annotations

import pytest

from online.attribution import MAX_EVENTS, OTHER, WINDOW_MS, Attribution
from schemas.event import Event

AT = 1_764_450_000_000
CAUSE = {"rung": "generate", "release": "r1"}


def event(kind: str, at: int = AT, context: dict | None = None, **fields: str) -> Event:
    named = {"event_id": f"{kind}{at}", "user_id": "u", "item_id": "i"} | fields
    from schemas.names import Kind

    return Event(**named, kind=Kind(kind), at=at, context=context or {})


@pytest.fixture
def attribution() -> Attribution:
    return Attribution(lambda: frozenset({"r1", "r2"}), max_impressions=3)


def test_what_an_event_says_itself_counts(attribution):
    attribution.cause(event("impression", context=CAUSE))
    assert attribution.cause(event("click", AT + 5, {"rung": "cohort", "release": "r2"})) == ("cohort", "r2")


@pytest.mark.parametrize(
    ("fields", "after_ms", "expected"),
    [
        ({}, 0, ("generate", "r1")),
        ({}, WINDOW_MS, ("generate", "r1")),
        ({}, WINDOW_MS + 1, (OTHER, OTHER)),
        ({}, -1, (OTHER, OTHER)),
        ({"user_id": "v"}, 5, (OTHER, OTHER)),
        ({"item_id": "j"}, 5, (OTHER, OTHER)),
    ],
)
def test_else_the_impression_of_the_same_item_to_the_same_user(attribution, fields, after_ms, expected):
    attribution.cause(event("impression", context=CAUSE))
    for kind in ("click", "purchase"):
        assert attribution.cause(event(kind, AT + after_ms, **fields)) == expected


def test_the_last_impression_counts_and_the_oldest_is_forgotten(attribution):
    attribution.cause(event("impression", context=CAUSE))
    attribution.cause(event("impression", AT + 1, {"rung": "popular", "release": "r2"}))
    assert attribution.cause(event("click", AT + 2)) == ("popular", "r2")
    for n in range(3):
        attribution.cause(event("impression", context=CAUSE, item_id=f"other{n}"))
    assert attribution.cause(event("click", AT + 2)) == (OTHER, OTHER)


def test_a_label_is_never_what_a_client_makes_up(attribution):
    assert attribution.cause(event("click", context={"rung": "x" * 99, "release": "y"})) == (OTHER, OTHER)
    attribution.cause(event("impression", context={"rung": "x", "release": "y"}))
    assert attribution.cause(event("click")) == (OTHER, OTHER)


def test_an_event_that_is_sent_again_counts_once(attribution):
    assert [attribution.new(event("click", event_id=name)) for name in "aba"] == [True, True, False]
    assert attribution.new(event("click", event_id="c"))
    for n in range(MAX_EVENTS):
        attribution.new(event("click", event_id=f"n{n}"))
    assert attribution.new(event("click", event_id="a"))
