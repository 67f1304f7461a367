"""Cron fields: what Airflow would refuse is refused by the plan."""

import pytest

from schemas.cron import is_cron


@pytest.mark.parametrize("text", ["0 3 * * *", "*/15 0-6 1,15 jan MON-FRI", "5/10 23 31 12 7", "0  3 * * 0"])
def test_what_can_be_read(text):
    assert is_cron(text)


@pytest.mark.parametrize(
    "text",
    ["", "0 3 * *", "0 3 * * * *", "60 3 * * *", "0 24 * * *", "0 3 0 * *", "0 3 * 13 *", "0 3 * * 8", "0 3 * mon *",
     "5-1 3 * * *", "*/0 3 * * *", "0, 3 * * *", "a b c d e", "-1 3 * * *"],
)  # fmt: skip
def test_what_can_not(text):
    assert not is_cron(text)
