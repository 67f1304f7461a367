"""Encoding: the inputs against the contract's own words, the numbers against torch's, alone and in batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from nearline.encode import History, IntentEncoder, graph_inputs, history, stored_rows
from nearline.release import Release
from schemas.graphs import INTENT_ENCODER, gap_feature
from schemas.names import Kind
from schemas.window import WindowEvent

NUM_ITEMS, WINDOW = 60, 8


@st.composite
def histories(draw: st.DrawFn, smallest: int = 0) -> History:
    size = draw(st.integers(smallest, WINDOW))
    numbers = st.lists(st.integers(0, NUM_ITEMS - 1), min_size=size, max_size=size)
    kinds = st.lists(st.integers(1, len(Kind)), min_size=size, max_size=size)
    times = st.lists(st.integers(10**12, 10**12 + 10**9), min_size=size, max_size=size)
    return History(draw(numbers), draw(kinds), sorted(draw(times), reverse=True))


def naive_inputs(one: History, length: int) -> dict[str, list[float]]:
    """One user's inputs, an event at a time, as ``schemas.graphs`` says it."""
    item, kind, gap, before = [], [], [], None
    for number, which, at in zip(reversed(one.items), reversed(one.kinds), reversed(one.times), strict=True):
        item.append(number + 1)
        kind.append(which)
        gap.append(0.0 if before is None else gap_feature(at - before))
        before = at
    padding = [0] * (length - len(item))
    return {"item": padding + item, "kind": padding + kind, "gap": padding + gap}


@given(st.lists(histories(), min_size=1, max_size=5))
def test_inputs_are_what_the_contract_says(many: list[History]) -> None:
    inputs = graph_inputs(many, WINDOW)
    for row, one in enumerate(many):
        for name, expected in naive_inputs(one, WINDOW).items():
            np.testing.assert_allclose(inputs[name][row], expected, rtol=1e-6)
    assert {name: array.dtype.name for name, array in inputs.items()} == {
        "item": "int64",
        "kind": "int64",
        "gap": "float32",
    }


def test_the_graph_gives_the_numbers_of_torch(release: Release) -> None:
    case = json.loads((FIXTURES / "expected.json").read_text())[INTENT_ENCODER]
    inputs = {
        "item": np.asarray(case["inputs"]["item"], np.int64),
        "kind": np.asarray(case["inputs"]["kind"], np.int64),
        "gap": np.asarray(case["inputs"]["gap"], np.float32),
    }
    expected = np.asarray(case["outputs"]["last_row"], np.float32)
    rows = release.encoder.run(None, inputs | {"item_in": release.arrays["item_in"]})[0][:, -1]
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    stored, broken = stored_rows(rows[:, None])
    assert broken == []
    np.testing.assert_allclose(np.stack([np.frombuffer(raw, "<f2") for raw in stored]), expected, atol=1e-3)


def alone(release: Release, one: History) -> np.ndarray:
    """One user, padded to the whole window: nothing trimmed, nothing batched."""
    inputs = {
        name: np.asarray([values], np.float32 if name == "gap" else np.int64)
        for name, values in naive_inputs(one, WINDOW).items()
    }
    rows = release.encoder.run(None, inputs | {"item_in": release.arrays["item_in"]})[0]
    return rows[0, -release.model.state_rows :]


@given(many=st.lists(histories(smallest=1), min_size=1, max_size=40), max_batch=st.integers(1, 33))
def test_alone_or_in_a_batch_of_any_size_gives_the_same_rows(
    release: Release, many: list[History], max_batch: int
) -> None:
    rows = IntentEncoder(release).rows(many, max_batch)
    expected = np.stack([alone(release, one) for one in many])
    np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_no_events_give_zero_rows(release: Release) -> None:
    full = History([3], [2], [10**12])
    rows = IntentEncoder(release).rows([History([], [], []), full])
    assert not rows[0].any()
    np.testing.assert_allclose(rows[1], alone(release, full), atol=1e-6)


def test_unknown_items_are_left_out_and_counted() -> None:
    events = [WindowEvent(f"e{n}", item, "cart", 100 - n) for n, item in enumerate(["a", "?", "b", "a", "c"])]
    found = history(events, {"a": 7, "b": 8, "c": 9}, window=3)
    assert found == History([7, 8, 7], [3, 3, 3], [100, 98, 97], num_unknown=1)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(KeyError):
        history([WindowEvent("e", "a", "stare", 1)], {"a": 0}, window=3)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 70_000.0])
def test_what_is_not_finite_in_float16_is_named(wrong: float) -> None:
    rows = np.zeros((3, 2, 4), np.float32)
    rows[1, 0, 3] = wrong
    assert stored_rows(rows)[1] == [1]


def test_the_fixture_is_what_these_tests_assume(release: Release, release_folder: Path) -> None:
    assert (release.model.num_items, release.model.window) == (NUM_ITEMS, WINDOW), release_folder
