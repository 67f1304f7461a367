"""The ladder's choice against a naive reading of the rule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from online.ladder import Usual, choose
from schemas.names import Reason, Rung

RUNGS = [Rung.GENERATE, Rung.NEARLINE, Rung.COHORT, Rung.POPULAR]
READY = dict.fromkeys(RUNGS, Reason.OK)


@given(
    ladder=st.permutations(RUNGS).flatmap(lambda rungs: st.integers(1, 4).map(lambda n: rungs[:n])),
    ready=st.fixed_dictionaries({r: st.sampled_from([Reason.OK, Reason.OK, Reason.NO_CANDIDATES]) for r in RUNGS}),
    usual=st.fixed_dictionaries({r: st.floats(0, 0.1) for r in RUNGS}),
    remaining=st.floats(0, 0.1),
)
def test_every_rung_is_tried_in_order_or_has_a_reason(ladder, ready, usual, remaining):
    order, skipped = choose(ladder, ready, usual, remaining)
    able = [rung for rung in ladder if ready[rung] is Reason.OK]
    for rung in ladder:
        if ready[rung] is not Reason.OK:
            assert skipped[rung] is ready[rung]
        elif usual[rung] <= remaining or rung is able[-1]:
            assert rung in order
        else:
            assert skipped[rung] is Reason.NO_TIME
    assert order == [rung for rung in ladder if rung in order]
    assert set(order).isdisjoint(skipped)
    assert not able or order, "whoever could answer is asked, however late it is"


def test_generate_is_skipped_when_its_usual_time_exceeds_what_remains():
    order, skipped = choose(RUNGS, READY, {Rung.GENERATE: 0.004}, 0.003)
    assert order == RUNGS[1:]
    assert skipped == {Rung.GENERATE: Reason.NO_TIME}


def test_the_estimate_follows_and_a_bad_spell_is_forgotten():
    usual = Usual(0.002)
    for _ in range(200):
        usual.took(0.004)
    assert abs(usual.s - 0.004) < 1e-4
    for _ in range(50):
        usual.took(1.0)
    slow = usual.s
    skips = 0
    while usual.s > 0.01:
        usual.skipped()
        skips += 1
    assert slow > 0.5
    assert skips < 1000
