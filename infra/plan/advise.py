"""Where precompute pays, from what was measured: refresh interval, who gets candidates, which cohorts. Pure.

A simple model, each part of it checked against what came (``plan advise`` keeps its forecasts):

- A user comes again as often as on the day that was looked at: events less than half an hour apart are one visit.
- Within a refresh interval R at most one encoding is done for a user, so a user costs one for every slot of length R
  that holds an event.
- A request that ``generate`` does not answer is answered by the user's candidates if they have any, else by a cohort.
- A list made after a visit serves the next visits until it is too old (``usable_for``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

VISIT_GAP_S = 1800.0
DAY_S = 86_400.0
INTERVALS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0)
"""Refresh intervals that are weighed."""


class User(msgspec.Struct, frozen=True):
    """One user's day. ``times_s``: of events, seconds, in any order, within one day."""

    user_id: str
    cohort: str
    times_s: tuple[float, ...]


class Costs(msgspec.Struct, frozen=True):
    """Measured. ``fallback`` is the share of answers that ``generate`` did not give. Live times are of one request."""

    encode_ms: float  # of one state
    list_ms: float  # of one candidate list
    list_bytes: int
    state_bytes: int
    live_ms: Mapping[str, float]  # by rung
    fallback: float


class Budgets(msgspec.Struct, frozen=True):
    """What may be spent."""

    encodes_per_s: float
    redis_bytes: int
    device_ms_per_s: float  # of the machine that makes lists
    num_cohorts: int


class Choice(msgspec.Struct, frozen=True):
    """One user's candidates: what they cost and what they are good for, a day."""

    user_id: str
    benefit: float  # requests answered by their list
    num_bytes: int
    device_ms: float


class Advice(msgspec.Struct, frozen=True):
    """What is proposed, and what is expected of it (a day like the one looked at)."""

    refresh_s: float
    encodes_per_s: float
    encodes_fit: bool  # False: not even the longest interval keeps to the budget
    users: list[str]  # who gets candidates, best first
    list_bytes: int
    device_ms_per_s: float
    candidates_per_s: float
    hit_rate: float  # of stored lists: the share that answers at least one request in a day
    cohorts: list[str]  # that keep a list of their own; the others are served the popular one
    rungs: dict[str, float]  # expected share of answers
    live_ms: float  # expected, of one request


def visits(times_s: Sequence[float]) -> list[float]:
    """When each visit began: events less than half an hour apart are one."""
    begun: list[float] = []
    last = float("-inf")
    for at in sorted(times_s):
        if at - last >= VISIT_GAP_S:
            begun.append(at)
        last = at
    return begun


def slots(times_s: Sequence[float], length_s: float) -> int:
    """How many slots of ``length_s`` hold an event."""
    return len({int(at // length_s) for at in times_s})


def advise(day: Sequence[User], costs: Costs, budgets: Budgets, usable_for_s: float) -> Advice:
    """The proposal for a day's traffic."""
    refresh_s, encodes_per_s = refresh(day, budgets.encodes_per_s)
    room = max(0, budgets.redis_bytes - costs.state_bytes * len(day))
    offers = [offer(user, costs, usable_for_s) for user in day]
    chosen = choose(offers, room, budgets.device_ms_per_s * DAY_S)
    answered = sum(one.benefit for one in chosen)
    requests = sum(len(visits(user.times_s)) for user in day)
    cohorts = keep_cohorts(day, {one.user_id for one in chosen}, budgets.num_cohorts)
    rungs = _rungs(costs.fallback, answered / requests if requests else 0.0)
    device_ms = sum(one.device_ms for one in chosen)
    return Advice(
        refresh_s=refresh_s,
        encodes_per_s=round(encodes_per_s, 4),
        encodes_fit=encodes_per_s <= budgets.encodes_per_s,
        users=[one.user_id for one in chosen],
        list_bytes=sum(one.num_bytes for one in chosen),
        device_ms_per_s=round(device_ms / DAY_S, 4),
        candidates_per_s=round(device_ms / costs.list_ms / DAY_S, 4) if costs.list_ms else 0.0,
        hit_rate=round(sum(min(1.0, one.benefit) for one in chosen) / len(chosen), 4) if chosen else 0.0,
        cohorts=cohorts,
        rungs={name: round(share, 4) for name, share in rungs.items()},
        live_ms=round(sum(share * costs.live_ms.get(name, 0.0) for name, share in rungs.items()), 3),
    )


def refresh(day: Sequence[User], encodes_per_s: float) -> tuple[float, float]:
    """The shortest interval that keeps to the budget, and the encodings a second it takes; the longest if none does."""
    needed = 0.0
    for length_s in INTERVALS_S:
        needed = sum(slots(user.times_s, length_s) for user in day) / DAY_S
        if needed <= encodes_per_s:
            return length_s, needed
    return INTERVALS_S[-1], needed


def offer(user: User, costs: Costs, usable_for_s: float) -> Choice:
    """A list after each visit: good for the next one, if that comes in time and ``generate`` does not answer it."""
    begun = visits(user.times_s)
    gaps = [later - earlier for earlier, later in pairwise(begun)]
    gaps += [DAY_S - (begun[-1] - begun[0])] if begun else []  # the day comes round again
    useful = sum(gap <= usable_for_s for gap in gaps)
    return Choice(user.user_id, useful * costs.fallback, costs.list_bytes, len(begun) * costs.list_ms)


def choose(offers: Sequence[Choice], num_bytes: int, device_ms: float) -> list[Choice]:
    """Greedy: the best benefit for its cost first, while both budgets hold; what brings nothing is left out.

    The cost is the sum of the shares of the two budgets that it takes. Equal ones by user id.
    """

    def gain(one: Choice) -> float:
        share = one.num_bytes / max(1, num_bytes) + one.device_ms / max(1e-9, device_ms)
        return one.benefit / share if share else float("inf")

    chosen: list[Choice] = []
    for one in sorted(offers, key=lambda one: (-gain(one), one.user_id)):
        if one.benefit > 0 and one.num_bytes <= num_bytes and one.device_ms <= device_ms:
            chosen.append(one)
            num_bytes -= one.num_bytes
            device_ms -= one.device_ms
    return chosen


def keep_cohorts(day: Sequence[User], listed: set[str], num_cohorts: int) -> list[str]:
    """The cohorts whose list answers most requests of users without candidates, at most ``num_cohorts``."""
    asked: Counter[str] = Counter()
    for user in day:
        if user.user_id not in listed:
            asked[user.cohort] += len(visits(user.times_s))
    return [name for name, count in sorted(asked.items(), key=lambda one: (-one[1], one[0])) if count][:num_cohorts]


def judge(forecast: Mapping[str, float], came: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Of each figure that was forecast: ``expected``, ``came`` (0: a rung that never answered), ``off`` (came less
    expected)."""
    return {
        name: {"expected": expected, "came": came.get(name, 0.0), "off": round(came.get(name, 0.0) - expected, 4)}
        for name, expected in forecast.items()
    }


def _rungs(fallback: float, by_list: float) -> dict[str, float]:
    """Shares of the answers by rung. ``by_list``: of all requests, answered by candidates."""
    nearline = min(fallback, by_list)
    return {"generate": 1 - fallback, "nearline": nearline, "cohort": fallback - nearline}
