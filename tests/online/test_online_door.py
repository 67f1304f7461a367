"""Admission: as the loop gets slow the least valuable are shed first."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from online.door import KEPT, STALE_S, TURNS, Door, Ranks, Turns


@given(values=st.lists(st.floats(0, 5), max_size=60), size=st.integers(1, 20))
def test_a_rank_is_the_share_of_the_last_that_are_worth_less(values, size):
    ranks = Ranks(size)
    for number, value in enumerate(values):
        last = values[max(0, number - size) : number]
        below, upto = sum(v < value for v in last), sum(v <= value for v in last)
        rank = ranks.rank(value)
        assert below / len(last) <= rank <= upto / len(last) if last else rank == 1.0


def test_equals_are_spread_evenly():
    ranks = Ranks(100)
    got = [ranks.rank(1.0) for _ in range(200)][100:]
    for share in (0.2, 0.5, 0.8):
        assert sum(rank < share for rank in got) == pytest.approx(100 * share, abs=3)


def test_a_turn_is_measured_and_forgotten(clock):
    async def run():
        turns = Turns(clock)
        for _ in range(KEPT):
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


def test_one_stall_is_not_overload_several_are(clock):
    turns = Turns(clock)
    for seconds in (0.001, 0.001, 0.5, 0.001, 0.4):
        turns.took(seconds)
    assert (turns.s, turns.longest_s) == (0.001, 0.5)
    turns.took(0.5)
    assert turns.s == 0.4
    clock.now += STALE_S
    assert turns.longest_s == 0
    turns.took(0.5)
    assert turns.s == 0, "what was before the pause says nothing"


def test_an_idle_loop_admits_everybody(clock):
    door = Door(clock)
    assert all(door.admits(value, 0.001) for value in (0.0, 1.0, 5.0))


def test_the_least_valuable_are_shed_first_and_none_without_time(clock):
    door = Door(clock)
    for value in range(100):
        door.admits(float(value), 0.05)
    for _ in range(KEPT):
        door.turns.took(0.5 * 0.05 / TURNS)
    admitted = [door.admits(float(value), 0.05) for value in (0, 20, 60, 99)]
    assert admitted == [False, False, True, True]
    for _ in range(KEPT):
        door.turns.took(0.05)
    assert not door.admits(1000.0, 0.05)


def test_nobody_is_let_in_whose_look_up_would_be_in_vain(clock):
    """All four turns must fit into the limit of the store: of 4 ms they do not fit into 15; more time helps nobody."""
    for turn_s, limit_s, lets_in in ((0.004, float("inf"), True), (0.004, 0.015, False), (0.0035, 0.015, True)):
        door = Door(clock, store_timeout_s=limit_s)
        for _ in range(KEPT):
            door.turns.took(turn_s)
        assert door.admits(1.0, 1.0) is lets_in


def test_after_a_stall_those_it_turns_away_open_it_again(clock):
    """Every request times a turn, let in or not: a door that is shut still learns."""
    door = Door(clock, store_timeout_s=0.015)

    async def come(turn_s):
        door.enter()
        admitted = door.admits(1.0, 0.05)
        clock.now += turn_s
        await asyncio.sleep(0)
        return admitted

    async def run():
        return [await come(turn_s) for turn_s in [0.05] * KEPT + [0.0005] * KEPT]

    admitted = asyncio.run(run())
    assert not admitted[KEPT]
    assert admitted[-1]
