"""The circuit breaker, with a clock that the test moves."""

from __future__ import annotations

import pytest

from online.breaker import SPAN_S, Breaker


@pytest.fixture
def breaker(clock):
    return Breaker(clock, failures=3, pause_s=1.0)


def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        assert breaker.allows()
        breaker._clock.now += 0.6 * SPAN_S
        breaker.failed()


def test_failures_of_one_instant_are_one_stall(breaker, clock):
    for _ in range(50):
        breaker.failed()
    assert not breaker.open
    clock.now += SPAN_S
    breaker.failed()
    assert breaker.open


def test_it_opens_only_on_failures_in_a_row(breaker):
    fail(breaker, 2)
    breaker.succeeded()
    fail(breaker, 2)
    assert not breaker.open
    fail(breaker, 1)
    assert breaker.open
    assert not breaker.allows()


def test_one_probe_after_the_pause_decides(breaker, clock):
    fail(breaker, 3)
    clock.now += 0.99
    assert not breaker.allows()
    clock.now += 0.02
    assert breaker.allows()
    assert not breaker.allows(), "one probe at a time"
    breaker.failed()
    assert not breaker.allows(), "a failed probe starts the pause anew"
    clock.now += 1.0
    assert breaker.allows()
    breaker.succeeded()
    assert not breaker.open
    assert breaker.allows()
    assert breaker.allows()


def test_a_probe_that_gave_up_lets_the_next_one_try(breaker, clock):
    fail(breaker, 3)
    clock.now += 1.0
    assert breaker.allows()
    breaker.undecided()
    assert breaker.open
    assert breaker.allows()
