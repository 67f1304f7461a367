"""``./beforehand plan advise``: look, propose, forecast, and judge the last forecast."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from infra.plan.advise import Advice, Budgets, Costs, advise, judge
from infra.plan.ages import connect
from infra.plan.frozen import plain
from infra.plan.measure import Counters, ask, costs, look, read_counters
from schemas.cli import Result, say
from schemas.errors import PlanError, StoreError
from schemas.locations import address
from schemas.plan import Plan, load_plan
from schemas.registry import Database
from schemas.registry.plans import Plans
from schemas.units import human_seconds, num_bytes

SHOWN = 5


def advise_verb(args: argparse.Namespace) -> Result:
    """Run the verb."""
    plan = load_plan(args.file, args.set)
    url = args.url or address("online")
    counters = read_counters(ask(url, "/metrics").decode())
    usual_ms: dict[str, float] = msgspec.json.decode(ask(url, "/v1/releases"))["usual_ms"]
    link = connect()
    if link is None:
        raise StoreError("Redis does not answer", where="BEFOREHAND_REDIS", mend="Run `./beforehand up`.")
    seen = look(link, args.users, plan.online.k_max)
    cost = costs(counters, usual_ms, seen.state_bytes, seen.list_bytes)
    found = advise(seen.day, cost, _budgets(args), plan.assets["candidates"].usable_for)
    plans = Plans(Database())
    last = _judged(plans, counters)
    plans.forecast({"figures": _figures(found), "counters": plain(counters)})
    if not args.json:
        _tell(found, cost, plan, len(seen.day), seen.cut)
        _tell_last(last)
    said = plain(found) | {"num_users": len(found.users), "users": found.users[: args.show]}
    return said | {"looked_at": len(seen.day), "cut": seen.cut, "costs": plain(cost), "last_forecast": last}


def _budgets(args: argparse.Namespace) -> Budgets:
    try:
        size = num_bytes(args.redis_bytes)
    except ValueError as error:
        raise PlanError(str(error), where="--redis-bytes", value=args.redis_bytes, mend="As in 256MB.") from None
    return Budgets(args.encodes_per_s, size, args.device_ms_per_s, args.cohorts)


def _figures(found: Advice) -> dict[str, float]:
    """What can be checked by the service's own counters later."""
    return {"live_ms": found.live_ms, **found.rungs}


def _judged(plans: Plans, counters: Counters) -> dict[str, Any] | None:
    """The last forecast beside what came since; None when there is none or nothing came."""
    last = plans.last_forecast()
    if last is None:
        return None
    at, forecast = last
    came = counters.since(msgspec.convert(forecast["counters"], Counters))
    if not came.total:
        return None
    return {"at": at, "answers": came.total, "figures": judge(forecast["figures"], came.figures())}


def _tell(found: Advice, cost: Costs, plan: Plan, num_users: int, cut: bool) -> None:
    more = " (there are more: the figures are of these)" if cut else ""
    say(f"looked at the last day of {num_users:,} users{more}; {cost.fallback:.1%} of the answers were not generated")
    now = float(plan.nearline.refresh)
    fits = "" if found.encodes_fit else ": above the budget even so"
    say(f"refresh: {human_seconds(found.refresh_s)} (now {human_seconds(now)}), {found.encodes_per_s} encodes/s{fits}")
    say(
        f"candidates: {len(found.users):,} users, {found.list_bytes:,} bytes, {found.device_ms_per_s} ms/s of the "
        f"machine; hit rate {found.hit_rate:.1%} a stored list and day"
    )
    if found.users:
        say(f"  first: {', '.join(found.users[:SHOWN])}")
    say(f"cohorts with a list of their own: {', '.join(found.cohorts) or 'none'}")
    rungs = ", ".join(f"{name} {share:.1%}" for name, share in found.rungs.items())
    say(f"expected: {found.live_ms} ms live a request; {rungs}")
    say(f"  in plan.toml: nearline.refresh, nearline.candidates_per_s = {found.candidates_per_s}")


def _tell_last(last: dict[str, Any] | None) -> None:
    if last is None:
        say("no earlier forecast to judge")
        return
    for name, one in last["figures"].items():
        say(f"last forecast: {name} {one['expected']:.4g}, came {one['came']:.4g} (off by {one['off']:+.4g})")


def arguments(sub: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = sub.add_argument
    add("--url", metavar="URL", help="of the service (default: $BEFOREHAND_ONLINE)")
    add("--encodes-per-s", type=float, default=500.0, metavar="N", help="budget of the worker (default: 500)")
    add("--redis-bytes", default="256MB", metavar="SIZE", help="budget of Redis (default: 256MB)")
    add("--device-ms-per-s", type=float, default=200.0, metavar="MS", help="of a machine that makes lists (200)")
    add("--cohorts", type=int, default=50, metavar="N", help="lists kept for cohorts at most (default: 50)")
    add("--users", type=int, default=100_000, metavar="N", help="looked at, at most (default: 100,000)")
    add("--show", type=int, default=1000, metavar="N", help="users named in the JSON, at most (default: 1,000)")
