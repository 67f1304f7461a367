"""150 % of what one thread can do, simulated with a clock of the test's: what the line's rules are worth."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from online.batching import Curve, batch, hopeless
from online.line import MAX_WAITING

BUDGET_S = 0.05
COST_S = {1: 0.0020, 2: 0.0030, 3: 0.0041, 4: 0.0052}


@dataclass(order=True)
class Request:
    rank: tuple[float, float]
    value: float = field(compare=False)
    ends_at: float = field(compare=False)
    release_id: str = field(compare=False, default="r")


def arrivals(seed: int, load: float, count: int = 2000) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    at, made = 0.0, []
    for _ in range(count):
        at += draw.expovariate(load * 4 / COST_S[4])
        made.append((at, draw.lognormvariate(0, 1)))
    return made


def goodput(requests: list[tuple[float, float]], rank) -> tuple[float, float]:
    """Shares of the value and of the number that are done in time, when ``rank(value, at)`` orders the line."""
    curve = Curve()
    for size, seconds in COST_S.items():
        for _ in range(200):
            curve.took(size, seconds)
    waiting: list[Request] = []
    running: list[Request] = []
    free_at, won, done = 0.0, 0.0, 0
    upcoming = iter([*requests, (float("inf"), 0.0)])
    arriving = next(upcoming)
    while arriving[0] < float("inf") or waiting or running:
        now = min(arriving[0], free_at) if running or waiting else arriving[0]
        if running and free_at <= now:
            assert all(free_at <= each.ends_at for each in running), "a run made a member late"
            won, done, running = won + sum(each.value for each in running), done + len(running), []
        if arriving[0] <= now:
            at, value = arriving
            waiting.append(Request((rank(value, at), at), value, at + BUDGET_S))
            waiting.sort()
            for position in reversed(hopeless(waiting, max(free_at, now), curve, 1, MAX_WAITING)):
                waiting.pop(position)
            arriving = next(upcoming)
        if not running and waiting:
            chosen = batch(waiting, now, curve)
            if not chosen:
                waiting.clear()  # none can be in time
            else:
                running = [waiting[position] for position in chosen]
                for position in reversed(chosen):
                    waiting.pop(position)
                free_at = now + COST_S[len(running)]
    return won / sum(value for _, value in requests), done / len(requests)


@pytest.mark.parametrize("seed", range(5))
def test_capacity_goes_to_the_valuable_and_none_is_wasted(seed):
    requests = arrivals(seed, load=1.5)
    by_value, number = goodput(requests, lambda value, _at: -value)
    first_come, _ = goodput(requests, lambda _value, at: at)
    draw = random.Random(seed)
    at_random, _ = goodput(requests, lambda _value, _at: draw.random())
    assert by_value > 1.15 * max(first_come, at_random)
    assert number > 0.63, "two thirds is what there is capacity for"


@pytest.mark.parametrize("seed", range(3))
def test_below_capacity_everybody_is_served(seed):
    won, number = goodput(arrivals(seed, load=0.6), lambda value, _at: -value)
    assert won > 0.995
    assert number > 0.995
