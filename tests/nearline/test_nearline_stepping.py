"""Rows of long windows by steps: what is kept never shows in what comes out."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nearline_fakes import AT

from nearline.encode import History, graph_inputs
from nearline.stepping import SLACK, StepEncoder, encoded_part
from nearline.window import fold
from schemas.window import WindowEvent

WINDOW, ITEMS = 16, 30


class Sums:
    """A causal encoder in one line: each row is the sum of what all events up to it say."""

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(shape=shape) for shape in ([0, 0],) * 3 + ([0, 1, 1, "S", 1],)]

    def run(self, _outputs: None, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        said = feed["item"] * 10 + feed["kind"] + feed["gap"]
        assert feed["item"].shape[1], "never asked for nothing"
        rows = feed["past_key"].sum() + np.cumsum(said, axis=1)
        new = said.astype(np.float32)[:, None, None, :, None]
        return [rows[:, :, None].astype(np.float32), new, new]


def encoder(cache_bytes: int) -> StepEncoder:
    model = SimpleNamespace(state_rows=2, width=1, window=WINDOW)
    arrays = {"item_in": np.zeros((ITEMS + 1, 1), np.float32)}
    return StepEncoder(SimpleNamespace(step=Sums(), arrays=arrays, model=model), cache_bytes)  # type: ignore[arg-type]


def past_of(events: list[WindowEvent]) -> History:
    return History([int(one.item_id) for one in events], [1] * len(events), [one.at for one in events])


def whole(past: History) -> np.ndarray:
    inputs = graph_inputs([past], len(past.items))
    rows = np.cumsum(inputs["item"] * 10 + inputs["kind"] + inputs["gap"], axis=1)[0]
    found = np.zeros((2, 1))
    found[2 - min(2, len(rows)) :, 0] = rows[-2:]
    return found


EVENTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 40), st.integers(0, ITEMS - 1)), min_size=1, max_size=80
)


@given(EVENTS, st.sampled_from([0, 200, 10_000]))
def test_any_order_duplicates_and_evictions(given_events: list[tuple[str, int, int]], cache_bytes: int) -> None:
    steps, seen = encoder(cache_bytes), {"a": list[WindowEvent](), "b": list[WindowEvent]()}
    for user, minute, item in given_events:
        seen[user].append(WindowEvent(f"{minute}", str((item + minute) % ITEMS), "click", AT + 60_000 * minute))
        window = fold(seen[user], WINDOW)
        past = past_of(list(encoded_part(window, WINDOW)))
        assert np.allclose(steps.row(user, past), whole(past), atol=1e-2)
        assert steps.num_bytes <= cache_bytes
    assert steps.num_encoded <= steps.num_whole


def test_a_new_event_costs_as_many_rows_as_a_state_has() -> None:
    steps, events = encoder(10_000), list[WindowEvent]()
    for n in range(10):
        events.insert(0, WindowEvent(f"e{n}", str(n), "click", AT + n))
        steps.row("u", past_of(events))
    assert steps.num_encoded == 1 + 2 * 9
    late = [*events[:3], WindowEvent("late", "9", "click", AT + 6), *events[3:]]
    before = steps.num_encoded
    steps.row("u", past_of(late))
    assert steps.num_encoded - before == 4, "from its place on"
    steps.row("stranger", past_of(events), keep=False)
    size = steps.num_bytes
    steps.forget("stranger")
    assert steps.num_bytes == size > 0
    steps.forget("u")
    assert steps.num_bytes == 0


def test_a_full_window_begins_with_the_same_event_for_long() -> None:
    window, firsts, saved = 800, list[str](), encoder(10**9)
    events = [WindowEvent(f"e{n}", str(n % ITEMS), "click", AT + 1000 * n) for n in range(2400)][::-1]
    for newest in range(1600, -1, -1):
        part = encoded_part(events[newest : newest + window], window)
        firsts.append(part[-1].event_id)
        assert window - window // SLACK <= len(part) <= window
        saved.row("u", past_of(list(part)))
    changes = sum(one != other for one, other in pairwise(firsts))
    assert changes < 1600 / (window / SLACK) * 4
    assert 1 - saved.num_encoded / saved.num_whole > 0.9
    short = events[: window - 1]
    assert encoded_part(short, window) == short
