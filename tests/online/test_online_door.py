"""Admission: as the loop gets slow the least valuable are shed first."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from online.door import STALE_S, TURNS, Door, Ranks, Turns


@given(values=st.lists(st.floats(0, 5), max_size=60), size=st.integers(1, 20))
def test_a_rank_is_the_share_of_the_last_that_are_worth_less(values, size):
    ranks = Ranks(size)
    for number, value in enumerate(values):
        last = values[max(0, number - size) : number]
        naive = sum((v < value) + 0.5 * (v == value) for v in last) / len(last) if last else 1.0
        assert ranks.rank(value) == pytest.approx(naive)


def test_a_turn_is_measured_and_forgotten(clock):
    async def run():
        turns = Turns(clock)
        assert turns.s == 0
        turns.measure()
        turns.measure()
        clock.now += 0.02
        await asyncio.sleep(0)
        took = turns.s
        clock.now += STALE_S
        return took, turns.s

    took, later = asyncio.run(run())
    assert took == pytest.approx(0.02)
    assert later == 0


def test_it_rises_at_once_and_falls_slowly(clock):
    turns = Turns(clock)
    turns.took(0.010)
    turns.took(0.001)
    assert 0.005 < turns.s < 0.010
    turns.took(0.020)
    assert turns.s == 0.020


def test_an_idle_loop_admits_everybody(clock):
    door = Door(clock)
    assert all(door.admits(value, 0.001) for value in (0.0, 1.0, 5.0))


def test_the_least_valuable_are_shed_first_and_none_without_time(clock):
    door = Door(clock)
    for value in range(100):
        door.admits(float(value), 0.05)
    door.turns.took(0.5 * 0.05 / TURNS)
    admitted = [door.admits(float(value), 0.05) for value in (0, 20, 60, 99)]
    assert admitted == [False, False, True, True]
    door.turns.took(0.05)
    assert not door.admits(1000.0, 0.05)
