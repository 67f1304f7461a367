"""Which days a backfill builds: the newest first, bounded, by UTC days whatever the clocks do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags.days import choose_days
from schemas.errors import DataError

MOMENTS = st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1), timezones=st.timezones())


def test_the_newest_day_only_unless_more_are_asked_for() -> None:
    days = choose_days("2026-03-01T00:00:00Z", "2026-03-31T00:00:00Z", 1)
    assert days.chosen == ["20260330"]
    assert days.left_out[:2] == ["20260329", "20260328"]
    assert len(days.left_out) == 29


def test_at_most_the_declared_number_newest_first() -> None:
    assert choose_days("2026-03-01T00:00:00Z", "2026-03-31T00:00:00Z", 3).chosen == ["20260330", "20260329", "20260328"]
    assert choose_days("2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", 31).left_out == []


def test_a_change_of_the_clock_inside_the_range_changes_nothing() -> None:
    """Berlin, 29 March 2026: +01:00 before, +02:00 after."""
    days = choose_days("2026-03-28T01:00:00+01:00", "2026-03-31T02:00:00+02:00", 31)
    assert days.chosen == ["20260330", "20260329", "20260328"]


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        ("2026-03-01T00:00:00", "2026-03-02T00:00:00Z", r"param begin: no offset.*Add the offset, as in 2026-03-01T00"),
        ("2026-03-01T00:00:00Z", "2026-03-02", r"param end: no offset"),
        ("yesterday", "2026-03-02T00:00:00Z", r"param begin: not a date and time"),
        (None, "2026-03-02T00:00:00Z", r"param begin: no date and time"),
        ("2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z", r"no day begins in the range"),
        ("2026-03-01T05:00:00Z", "2026-03-01T06:00:00Z", r"no day begins in the range"),
    ],
)
def test_a_range_that_can_not_be_meant_is_refused_with_the_mend(begin: str | None, end: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        choose_days(begin, end, 1)


@given(MOMENTS, st.integers(0, 40), st.integers(1, 31))
def test_like_asking_every_day_of_two_years(begin: datetime, length: int, most: int) -> None:
    end = begin + timedelta(days=length)
    first = datetime(2024, 12, 1, tzinfo=UTC)
    inside = [day for n in range(900) if begin <= (day := first + timedelta(days=n)) < end]
    expected = [day.strftime("%Y%m%d") for day in reversed(inside)]
    if not expected:
        with pytest.raises(DataError):
            choose_days(begin.isoformat(), end.isoformat(), most)
    else:
        found = choose_days(begin.isoformat(), end.isoformat(), most)
        assert found.chosen + found.left_out == expected
        assert len(found.chosen) == min(most, len(expected))


def test_days_to_come_are_no_days():
    now = datetime(2026, 3, 3, 12, tzinfo=UTC)
    found = choose_days("2026-03-01T00:00:00Z", "2026-12-31T00:00:00Z", 2, now)
    assert (found.chosen, found.left_out) == (["20260303", "20260302"], ["20260301"])
    with pytest.raises(DataError, match="begun yet"):
        choose_days("2026-03-04T00:00:00Z", "2026-03-05T00:00:00Z", 1, now)


def test_the_ends_of_the_calendar_are_refused():
    with pytest.raises(DataError, match="no such moment"):
        choose_days("0001-01-01T00:00:00+14:00", "2026-03-05T00:00:00Z", 1)
