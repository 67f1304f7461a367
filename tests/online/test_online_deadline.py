"""The deadline and its ledger, with a clock that the test moves."""

from __future__ import annotations

import pytest

from online.deadline import Deadline


def test_a_budget_granted_later_still_counts_from_the_entry(clock):
    deadline = Deadline(0.050, clock)
    clock.now += 0.020
    deadline.grant(0.030)
    assert deadline.remaining() == pytest.approx(0.010)
    clock.now += 0.020
    assert deadline.remaining() == 0.0
    assert deadline.expired()


def test_the_stages_add_up_to_the_whole(clock):
    deadline = Deadline(1.0, clock)
    for stage, seconds in (("parse", 0.001), ("store", 0.004), ("decode", 0.007), ("store", 0.002)):
        clock.now += seconds
        deadline.mark(stage)
    deadline.split("decode", "queue", 0.003)
    stages = {"parse": 0.001, "store": 0.006, "decode": 0.004, "queue": 0.003}
    assert deadline.stages_s == pytest.approx(stages)
    assert sum(deadline.stages_s.values()) == pytest.approx(deadline.elapsed())


def test_a_split_never_takes_more_than_there_is(clock):
    deadline = Deadline(1.0, clock)
    clock.now += 0.002
    deadline.mark("decode")
    deadline.split("decode", "queue", 5.0)
    assert deadline.stages_s == pytest.approx({"decode": 0.0, "queue": 0.002})


def test_a_fork_entered_when_the_batch_did_and_books_apart(clock):
    deadline = Deadline(0.050, clock)
    clock.now += 0.010
    first, second = deadline.fork(), deadline.fork()
    first.grant(0.020)
    first.mark("parse")
    assert first.remaining() == pytest.approx(0.010)
    assert second.remaining() == pytest.approx(0.040)
    assert second.stages_s == {}
