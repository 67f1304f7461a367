"""What may be used: ages by an injected clock, owners, shapes, numbers."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from online_values import NOW_MS, make_candidates, make_state

from online import judge
from schemas.api import PromptEmbedding
from schemas.freshness import Freshness
from schemas.names import Reason, State
from schemas.state import encode_candidates, encode_state

RULE = Freshness(60, 300)


def judged(raw: bytes | None, user_id: str = "u1"):
    return judge.judge_state(raw, user_id, RULE, NOW_MS)


@pytest.mark.parametrize(
    ("age_s", "state", "reason", "used"),
    [
        (30, State.FRESH, Reason.OK, True),
        (61, State.STALE, Reason.OK, True),
        (301, State.EXPIRED, Reason.TOO_OLD, False),
        (-60, State.FRESH, Reason.OK, True),
    ],
)
def test_ages(release, age_s, state, reason, used):
    value, report = judged(encode_state(make_state(release, made_at=NOW_MS - age_s * 1000), 1))
    assert (report.state, report.reason) == (state, reason)
    assert report.age_s == max(0, age_s)
    assert (value is not None) is used


@pytest.mark.parametrize(
    ("raw", "state", "reason"),
    [
        (None, State.MISSING, Reason.NO_STATE),
        (b"", State.EMPTY, Reason.UNDECODABLE),
        (b"BH1S", State.EMPTY, Reason.UNDECODABLE),
        (b"BH1S" + b"\xff" * 40, State.EMPTY, Reason.UNDECODABLE),
        (b"BH1S" + bytes(16) + b"\x91" * 100_000, State.EMPTY, Reason.UNDECODABLE),
    ],
)
def test_what_is_no_value(raw, state, reason):
    value, report = judged(raw)
    assert value is None
    assert (report.state, report.reason) == (state, reason)


def test_a_newer_value_with_a_deep_field_is_no_state(release):
    fields = msgspec.msgpack.encode(make_state(release))
    deep = b"BH1S" + bytes(16) + b"\xdc" + (14).to_bytes(2, "big") + fields[1:] + b"\x91" * 100_000 + b"\x01"
    assert judged(deep)[1].reason is Reason.UNDECODABLE


def test_a_value_of_another_kind_is_no_state(release):
    assert judged(encode_candidates(make_candidates(release), 1))[1].reason is Reason.UNDECODABLE


def test_a_value_of_another_user_is_never_used(release):
    value, report = judged(encode_state(make_state(release, "u2"), 1))
    assert value is None
    assert report.reason is Reason.WRONG_KEY


def test_rows_become_what_was_stored(release):
    state = make_state(release)
    rows, reason = judge.state_rows(state, release.model)
    assert reason is Reason.OK
    assert rows.dtype == np.float32
    assert rows.shape == (1, release.model.state_rows, release.model.width)
    assert rows.ravel().tolist() == np.frombuffer(state.rows, "<f2").tolist()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rows": b"\0\0"}, Reason.BAD_SHAPE),
        ({"num_rows": 2}, Reason.BAD_SHAPE),
        ({"rows": np.full(16, np.nan, "<f2").tobytes()}, Reason.NOT_FINITE),
        ({"rows": np.full(16, np.inf, "<f2").tobytes()}, Reason.NOT_FINITE),
        ({"items": [], "kinds": [], "times": []}, Reason.NO_STATE),
    ],
)
def test_rows_that_can_not_be_used(release, changes, reason):
    assert judge.state_rows(make_state(release, **changes), release.model) == (None, reason)


def prompt(made_with, **changes):
    model = made_with.model
    rows = np.ones((model.prompt_rows, model.width), "<f4").tobytes()
    return PromptEmbedding(**({"release": made_with.id, "rows": rows, "num_rows": model.prompt_rows} | changes))


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        ({}, State.FRESH, Reason.OK),
        ({"age_ms": 61_000}, State.STALE, Reason.OK),
        ({"age_ms": 301_000}, State.EXPIRED, Reason.TOO_OLD),
        ({"release": "another"}, State.MISMATCHED, Reason.OTHER_RELEASE),
        ({"rows": b"1234"}, State.EMPTY, Reason.BAD_SHAPE),
        ({"num_rows": 0, "rows": b""}, State.EMPTY, Reason.BAD_SHAPE),
        ({"rows": np.full(16, np.nan, "<f4").tobytes()}, State.EMPTY, Reason.NOT_FINITE),
    ],
)
def test_prompts(release, changes, state, reason):
    rows, report = judge.prompt_rows(prompt(release, **changes), release, RULE)
    assert (report.state, report.reason) == (state, reason)
    assert (rows is not None) is (reason is Reason.OK)


def test_no_prompt(release):
    assert judge.prompt_rows(None, release, RULE)[1].reason is Reason.NOT_SENT


def test_neighbours_that_are_no_items_become_padding(release):
    state = make_state(release, neighbour_items=[3, 60, -7, 4, 5], neighbour_scores=[1.0, 1.0, 1.0, float("nan"), 0.5])
    item, score = judge.neighbours(state, release.model)
    assert item.tolist() == [[3, -1, -1, -1, 5, -1, -1, -1]]
    assert score.tolist() == [[1.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize("items", [[2**63], [1, 2**64 - 1]])
def test_numbers_beyond_64_bits_are_no_items(release, items):
    state = make_state(release, neighbour_items=items, neighbour_scores=[1.0] * len(items))
    assert (judge.neighbours(state, release.model)[0] == -1).all()
    assert len(judge.item_numbers(items)) == 0
