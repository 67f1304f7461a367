"""The batching switch against a naive reference: every subset is looked at, with clocks and curves of the test's."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from online.batching import MAX_BATCH, PAUSE, Curve, batch, finish, hopeless


@dataclass
class Waiter:
    ends_at: float
    release_id: str = "r"


@st.composite
def curves(draw) -> Curve:
    """Learnt or not, cheaper by the dozen or not."""
    curve = Curve()
    runs = draw(st.lists(st.tuples(st.integers(1, MAX_BATCH), st.floats(0.0005, 0.02)), max_size=30))
    for size, seconds in runs:
        curve.took(size, seconds)
    return curve


waiters = st.builds(Waiter, st.floats(99.99, 100.05), st.sampled_from(["r", "r", "r", "s"]))


def allowed(chosen: tuple[int, ...], waiting: list[Waiter], now: float, curve: Curve) -> bool:
    """The rule: one release, no more than pays, and every member in time by the curve."""
    if not chosen:
        return True
    return (
        len({waiting[n].release_id for n in chosen}) == 1
        and len(chosen) <= curve.size()
        and all(now + curve.of(len(chosen)) <= waiting[n].ends_at for n in chosen)
    )


@given(waiting=st.lists(waiters, max_size=7), curve=curves())
def test_the_batch_is_the_best_of_all_subsets(waiting, curve):
    """The best one has the first job that can have one, then the second, and so on."""
    every = [s for size in range(MAX_BATCH + 1) for s in combinations(range(len(waiting)), size)]
    good = [s for s in every if allowed(s, waiting, 100.0, curve)]
    best = max(good, key=lambda s: [n in s for n in range(len(waiting))])
    assert batch(waiting, 100.0, curve) == list(best)


@given(curve=curves())
def test_the_curve_never_falls(curve):
    costs = [curve.of(size) for size in range(1, MAX_BATCH + 1)]
    assert costs == sorted(costs)


def learnt(**took: float) -> Curve:
    curve = Curve()
    curve.single.s = took["one"]
    for size, name in enumerate(("one", "two", "three", "four"), 1):
        if name in took:
            for _ in range(200):
                curve.took(size, took[name])
    return curve


def test_unlearnt_or_after_a_fault_jobs_run_alone():
    assert Curve().size() == 1
    curve = learnt(one=0.001, two=0.0012, three=0.0014, four=0.0016)
    assert curve.size() == MAX_BATCH
    curve.forget()
    assert curve.size() == 1
    curve.took(1, 0.002)
    assert curve.size() == MAX_BATCH, "larger ones are tried again"
    assert curve.of(4) == pytest.approx(4 * curve.of(1)), "what was learnt before the fault is not believed"


def test_what_does_not_pay_is_not_done():
    assert learnt(one=0.001, two=0.0025, three=0.005, four=0.009).size() == 1
    assert learnt(one=0.001, two=0.0015, three=0.0040, four=0.009).size() == 2


def run_on(curve: Curve, takes: dict[int, float], runs: int) -> list[int]:
    """A line that is always full: the sizes that were run."""
    sizes = []
    for _ in range(runs):
        sizes.append(curve.size())
        curve.took(sizes[-1], takes[sizes[-1]])
    return sizes


@pytest.mark.parametrize("stall_s", [0.05, 5.0])
def test_one_slow_run_does_not_rule_a_size_out_for_good(stall_s):
    curve = learnt(one=0.001, two=0.0012, three=0.0014)
    curve.took(MAX_BATCH, stall_s)  # the machine stood still
    assert curve.size() == 3
    sizes = run_on(curve, {3: 0.0014, 4: 0.0016}, 2 * PAUSE)
    assert sizes[:10] == [3] * 10
    assert sizes[-100:] == [MAX_BATCH] * 100
    assert curve.of(MAX_BATCH) < 0.002


@pytest.mark.parametrize("times", [1.05, 1.2, 2, 5, 20])
def test_a_size_that_does_not_pay_costs_next_to_nothing(times):
    takes = {size: 0.001 * size * (times if size > 1 else 1) for size in range(1, MAX_BATCH + 1)}
    curve = learnt(one=0.001)
    sizes = run_on(curve, takes, 20_000)
    spent = sum(takes[size] for size in sizes)
    assert sum(sizes) * takes[1] > 0.93 * spent


def test_a_tight_deadline_runs_alone_and_the_next_batch_takes_the_rest():
    curve = learnt(one=0.002, two=0.003, three=0.004, four=0.005)
    waiting = [Waiter(100.0025), Waiter(100.1), Waiter(100.1), Waiter(100.1)]
    assert batch(waiting, 100.0, curve) == [0]
    assert batch(waiting[1:], 100.0, curve) == [0, 1, 2]
    assert batch([waiting[1], waiting[0], waiting[2]], 100.0, curve) == [0, 2], "the tight one would be late"


@given(waiting=st.lists(waiters, max_size=12), curve=curves(), workers=st.integers(1, 3), limit=st.integers(0, 8))
def test_who_is_given_up_would_be_late_behind_those_who_stay(waiting, curve, workers, limit):
    lost = hopeless(waiting, 100.0, curve, workers, limit)
    kept = 0
    for position, job in enumerate(waiting):
        late = finish(kept, 100.0, curve, workers) > job.ends_at
        assert (position in lost) is (late or kept == limit)
        kept += position not in lost


@given(curve=curves(), workers=st.integers(1, 3))
def test_the_expected_end_follows_the_rounds(curve, workers):
    """Naively: worker by worker and batch by batch."""
    size, ends = curve.size(), []
    for start in range(0, 24, size * workers):
        begun = 100.0 + start // (size * workers) * curve.of(size)
        ends += [begun + curve.of(place // workers + 1) for place in range(size * workers)]
    assert [finish(n, 100.0, curve, workers) for n in range(len(ends))] == pytest.approx(ends)
