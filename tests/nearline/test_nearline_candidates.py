"""Candidate lists: the decoder's own answer, for the most active users, no more often than allowed."""

from __future__ import annotations

import json

import msgspec
import numpy as np
from conftest import FIXTURES
from hypothesis import given
from hypothesis import strategies as st
from nearline_fakes import AT, state, window

from nearline.candidates import MAX_WAITING, Allowance, ListMaker, Waiting
from nearline.release import Release, load_release
from nearline.states import Record, StateMaker, sort_out
from schemas.graphs import DECODER, decoder_arrays
from schemas.state import IntentState


def states(release: Release, count: int) -> list[IntentState]:
    items = list(release.item_number)
    records = [Record(0, n, f"u{n}".encode(), window(items[n : 2 * n + 1])) for n in range(count)]
    readings = list(sort_out(records, "windows").windows.values())
    return [one for one, _ in StateMaker(release).make(readings).states]


def test_a_list_holds_real_items_best_first(release: Release) -> None:
    for one in ListMaker(release).make(states(release, 4)):
        assert 0 < len(one.items) == len(set(one.items)) <= release.model.k_max
        assert all(0 <= item < release.model.num_items for item in one.items)
        assert one.scores == sorted(one.scores, reverse=True)
        assert (one.release, one.watermark) == (release.id, AT)


def test_alone_or_together_gives_the_same_lists(release: Release) -> None:
    many = states(release, 4)
    maker = ListMaker(release)
    for one, together in zip(many, maker.make(many, 0), strict=True):
        (alone,) = maker.make([one], 0)
        assert alone.items == together.items
        np.testing.assert_allclose(alone.scores, together.scores, atol=1e-5)


def test_a_release_of_format_1_makes_lists() -> None:
    """Its decoder takes no category sets."""
    old = load_release(FIXTURES / "release-format-1", FIXTURES / "release.pub")
    assert all(made.items for made in ListMaker(old).make(states(old, 2)))


def test_the_decoder_gives_the_numbers_of_torch(release: Release) -> None:
    case = json.loads((FIXTURES / "expected.json").read_text())[DECODER]
    kinds = {given.name: np.int64 if "int64" in given.type else np.float32 for given in release.decoder.get_inputs()}
    inputs = {name: np.asarray(values, kinds[name]) for name, values in case["inputs"].items()}
    arrays = {name: release.arrays[name] for name in decoder_arrays(release.model.levels) if name in kinds}
    items, scores = release.decoder.run(None, inputs | arrays)
    np.testing.assert_array_equal(items, case["outputs"]["item"])
    found = items >= 0
    np.testing.assert_allclose(scores[found], np.asarray(case["outputs"]["score"])[found], atol=1e-4)


def test_nobody_gets_no_list(release: Release) -> None:
    assert ListMaker(release).make([]) == []


def test_the_most_active_are_served_first() -> None:
    waiting = Waiting()
    waiting.add([(state("few", items=[1]), 0), (state("many", items=[1, 2, 3]), 1), (state("some", items=[1, 2]), 2)])
    waiting.add([(state("late", AT + 1, items=[1]), 3)])
    assert [one.user_id for one, _ in waiting.take(3)] == ["many", "some", "late"]
    assert [one.user_id for one, _ in waiting.take(9)] == ["few"]
    assert len(waiting) == 0


def test_a_newer_state_replaces_the_older_and_empty_ones_do_not_wait() -> None:
    waiting = Waiting()
    waiting.add([(state("u", AT), 0), (msgspec.structs.replace(state("empty"), num_rows=0), 1)])
    waiting.add([(state("u", AT + 1), 2)])
    assert [(one.user_id, one.watermark, number) for one, number in waiting.take(5)] == [("u", AT + 1, 2)]


def test_who_waits_is_bounded_and_can_be_dropped() -> None:
    waiting = Waiting()
    waiting.add([(state(f"u{n}", AT + n), n) for n in range(MAX_WAITING + 50)])
    waiting.drop([f"u{MAX_WAITING + 49}", "unknown"])
    assert len(waiting) == MAX_WAITING - 1
    assert waiting.take(1)[0][0].user_id == f"u{MAX_WAITING + 48}"


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 9)), max_size=30), st.sampled_from([0, 0.5, 1, 20]))
def test_never_more_than_allowed(steps: list[tuple[float, int]], per_s: float) -> None:
    now = [0.0]
    allowance = Allowance(per_s, clock=lambda: now[0])
    taken = 0
    for pause, wanted in steps:
        now[0] += pause
        got = allowance.take(wanted)
        assert 0 <= got <= wanted
        taken += got
        assert taken <= per_s * now[0] + (max(1, per_s) if per_s else 0) + 1e-6


def test_what_is_allowed_is_given() -> None:
    now = [0.0]
    allowance = Allowance(2, clock=lambda: now[0])
    assert [allowance.take(5), allowance.take(5)] == [2, 0]
    now[0] = 0.5
    assert allowance.take(5) == 1
