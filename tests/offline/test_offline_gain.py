"""The replay behind `recall_gain`: which events are missed, what is asked for, and the tiers on the fixture release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.gain import Asked, Tiers, compared, delayed, measure, recall, requests, spaced

FIXTURES = Path(__file__).parent.parent / "fixtures"
MINUTE = 60_000


def log(*lines: tuple[str, str, int, int]) -> pl.DataFrame:
    """User, session, item number, minute."""
    frame = pl.DataFrame(list(lines), schema=["user_id", "session", "number", "at"], orient="row")
    return frame.with_columns(at=pl.col("at") * MINUTE)


def made(times: list[int], at: int) -> Asked:
    count = len(times)
    return Asked("u", 0, at, np.arange(count), np.full(count, 4), np.array(times, np.int64), np.array([9]), [])


@pytest.fixture(scope="module")
def tiers() -> Tiers:
    return Tiers(FIXTURES / "release", FIXTURES / "release.pub")


def test_lines_of_a_session_are_spaced_in_the_logs_order() -> None:
    events = spaced(log(("u", "a", 7, 1), ("v", "b", 5, 1), ("u", "a", 3, 1), ("u", "a", 4, 2)), 5_000)
    mine = events.filter(pl.col("user_id") == "u")
    assert mine["number"].to_list() == [7, 3, 4]
    assert mine["at"].to_list() == [MINUTE, MINUTE + 5_000, MINUTE + 10_000]
    assert events.filter(pl.col("user_id") == "v")["at"].to_list() == [MINUTE]


def test_a_request_comes_in_the_middle_of_each_held_back_session() -> None:
    history = [("u", "old", item, 1) for item in range(4)]
    basket = [("u", "new", item, 100) for item in (10, 11, 12, 13, 14)]
    single = [("v", "one", 10, 100)]
    cases = requests(spaced(log(*history, *basket, *single), 5_000), 50 * MINUTE, {"u": 3})
    assert [(case.user, case.bucket, case.at) for case in cases] == [("u", 3, 100 * MINUTE + 5_000)]
    assert cases[0].window.tolist() == [0, 1, 2, 3, 10, 11]
    assert cases[0].target.tolist() == [12, 13, 14]
    assert cases[0].basket.tolist() == [10, 11]


def test_a_session_that_began_before_the_cut_is_training() -> None:
    assert not requests(spaced(log(("u", "a", 1, 9), ("u", "a", 2, 9)), 5_000), 9 * MINUTE + 1, {})


@given(
    st.lists(st.integers(0, 100_000), max_size=30).map(sorted),
    st.sampled_from([0, 1, 999, 1_000, 10_000, 60_000]),
    st.integers(1, 8),
    st.integers(1, 12),
)
def test_the_delay_splits_what_was_done(times: list[int], delay_ms: int, local_events: int, window: int) -> None:
    at = times[-1] if times else 0
    seen = [n for n, time in enumerate(times) if at - time >= delay_ms]
    missed = [n for n, time in enumerate(times) if at - time < delay_ms]
    case = delayed(made(times, at), delay_ms, window, local_events)
    assert case.window.tolist() == seen[-window:]
    assert [item for item, _, _ in case.local] == missed[-local_events:]
    assert [when for _, _, when in case.local] == [times[n] for n in missed[-local_events:]]


def test_recall_is_the_share_of_the_targets_found() -> None:
    case = made([], 0)
    assert recall(np.array([[9, -1], [1, 9]]), [case, case], first=1).tolist() == [1.0, 0.0]


def test_without_events_the_default_rows_stand_in(tiers: Tiers) -> None:
    case = made([], 1_772_359_500_123)
    assert np.array_equal(tiers.prompts([case], on_device=True)[0], tiers.arrays["prompt_defaults"][0])
    state = tiers.arrays["intent_defaults"][0].astype(np.float16)
    assert np.array_equal(tiers.states([case])[0], state)


def test_a_case_is_answered_alike_alone_and_in_a_batch(tiers: Tiers) -> None:
    model = tiers.model
    whole = [made(list(range(0, 5_000 * n, 5_000)), 5_000 * n - 5_000) for n in range(1, 40)]
    cases = [delayed(case, 10_000, model.window, model.local_events) for case in whole]
    together = tiers.lists(cases, "", on_device=True)
    for row in (0, 20, 38):
        assert np.array_equal(tiers.lists([cases[row]], "", on_device=True)[0], together[row])
    assert not np.array_equal(tiers.prompts(cases, on_device=True), tiers.prompts(cases, on_device=False))


def test_what_lies_in_the_basket_is_not_recalled(tiers: Tiers) -> None:
    case = made([0, 1_000], 1_000)
    free = tiers.lists([case], "", on_device=True)[0]
    barred = replace(case, basket=free[:2])
    assert not set(free[:2]) & set(tiers.lists([barred, case], "", on_device=True)[0])


def test_a_delay_that_misses_nothing_gains_nothing(tiers: Tiers) -> None:
    """The request comes long after the last event: every delay sees all, and there is nothing on the device."""
    cases = [made([0, 1_000, 2_000], 10**9 + n) for n in range(3)]
    found = measure(tiers, cases, (1.0, 60.0))
    assert set(found["by_delay"]) == {"1", "60"}
    for row in found["by_delay"].values():
        assert (row["gain"], row["missed_events"], row["stale"]) == (0.0, 0.0, found["seen_all"])
        assert row["few_events"] == {name: row[name] for name in row["few_events"]}


def test_the_gain_is_paired() -> None:
    told = compared(np.array([0.1, 0.5]), np.array([0.2, 0.6]), np.array([1.0, 1.0]))
    assert told == {"cases": 2, "seen_all": 1.0, "stale": 0.3, "prompted": 0.4, "gain": 0.1, "standard_error": 0.0}
    assert compared(np.zeros(0), np.zeros(0), np.zeros(0)) == {"cases": 0}
