"""150 % of what one thread can do, simulated with a clock of the test's: what the line's rules are worth."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import mean
from types import SimpleNamespace
from typing import Any, cast

import pytest

from online.batching import Curve
from online.line import Job, Line, Run

BUDGET_S = 0.05
COST_S = {1: 0.0020, 2: 0.0030, 3: 0.0041, 4: 0.0052}
RELEASE: Any = SimpleNamespace(id="r")


class Sleeper:
    """A future of the test's: nobody awaits it."""

    def done(self) -> bool:
        return False


def arrivals(seed: int, load: float, count: int = 2000) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    at, made = 0.0, []
    for _ in range(count):
        at += draw.expovariate(load * 4 / COST_S[4])
        made.append((at, draw.lognormvariate(0, 1)))
    return made


def served(requests: list[tuple[float, float]], say: Callable[[float], float]) -> list[tuple[float, float]]:
    """Worth and wait of those that are done in time, when each says that it is worth ``say(value)``."""
    curve = Curve()
    for size, seconds in COST_S.items():
        for _ in range(200):
            curve.took(size, seconds)
    clock = SimpleNamespace(now=0.0)
    line = Line(curve, 1, lambda: clock.now)
    waiting: dict[Job, float] = {}
    run: Run | None = None
    free_at, done = 0.0, list[tuple[float, float]]()
    upcoming = iter([*requests, (float("inf"), 0.0)])
    arriving = next(upcoming)
    while arriving[0] < float("inf") or run is not None:
        clock.now = min(arriving[0], free_at) if run is not None else arriving[0]
        if run is not None and free_at <= clock.now:
            assert all(free_at <= job.ends_at for job in run.jobs), "a run made a member late"
            done += [(waiting.pop(job), clock.now - job.queued_at) for job in run.jobs]
            line.ended(run)
            run = None
        if arriving[0] <= clock.now:
            at, value = arriving
            job = Job(RELEASE, {}, cast("Any", Sleeper()), value=say(value), ends_at=at + BUDGET_S, queued_at=at)
            waiting[job] = value
            for lost in line.add(job):
                del waiting[lost]
            arriving = next(upcoming)
        if run is None and (run := line.choose()):
            free_at = clock.now + COST_S[len(run.jobs)]
    return done


def share(done: list[tuple[float, float]], requests: list[tuple[float, float]]) -> float:
    """Of the value."""
    return sum(value for value, _ in done) / sum(value for _, value in requests)


@pytest.mark.parametrize("seed", range(5))
def test_capacity_goes_to_the_valuable_and_none_is_wasted(seed):
    requests = arrivals(seed, load=1.5)
    by_value = served(requests, lambda value: value)
    first_come = served(requests, lambda _value: 1.0)
    draw = random.Random(seed)
    at_random = served(requests, lambda _value: draw.random())
    assert share(by_value, requests) > 1.15 * max(share(first_come, requests), share(at_random, requests))
    assert len(by_value) / len(requests) > 0.63, "two thirds is what there is capacity for"


@pytest.mark.parametrize("seed", range(3))
def test_below_capacity_everybody_is_served_and_nobody_waits_for_being_worth_little(seed):
    requests = arrivals(seed, load=0.6)
    done = served(requests, lambda value: value)
    assert len(done) > 0.995 * len(requests)
    done.sort()
    little, much = done[: len(done) // 2], done[len(done) // 2 :]
    assert mean(wait for _, wait in little) < 1.1 * mean(wait for _, wait in much)
    assert max(wait for _, wait in done) < BUDGET_S / 2


def test_who_has_lost_their_chance_is_told_as_soon_as_that_shows():
    """A run takes longer than it usually does: the job behind it leaves when the line is looked at, not at its end."""
    curve, clock = Curve(1), SimpleNamespace(now=0.0)
    for _ in range(200):
        curve.took(1, 1.0)
    line = Line(curve, 1, lambda: clock.now)

    def job(ends_at: float) -> Job:
        return Job(RELEASE, {}, cast("Any", Sleeper()), value=1.0, ends_at=ends_at, queued_at=clock.now)

    first, second, third = job(5.0), job(4.0), job(9.0)
    assert line.add(first) == []
    assert line.choose() is first.run is not None
    assert [line.add(second), line.add(third), line.give_up()] == [[], [], []]
    clock.now = 3.5
    assert line.give_up() == [second]
    assert line.in_flight == 2
    line.leave(first)
    assert first.run is None, "a job and its run keep each other"
