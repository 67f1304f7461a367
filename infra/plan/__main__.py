"""``./beforehand plan check | show | diff | explain | apply | advise``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from infra.plan import advise_verb, picture
from infra.plan.ages import ages, reach
from infra.plan.evaluate import Evaluator
from infra.plan.frozen import Frozen, plain, read_frozen
from schemas.cli import Result, console, main, parser, say, verb
from schemas.errors import PlanError
from schemas.locations import plan_path
from schemas.plan import load_plan
from schemas.plan_changes import compare, worst
from schemas.registry import Registry
from schemas.registry.plans import Plans

IN_FORCE = "applied"
CORE_HOUR = "BEFOREHAND_CORE_HOUR"


def check(args: argparse.Namespace) -> Result:
    """``plan check``."""
    plan = load_plan(args.file, args.set)
    say(f"✓ the plan holds: {len(plan.assets)} assets, digest {plan.digest()}")
    return {"digest": plan.digest(), "order": plan.order(), "plan": plain(plan)}


def show(args: argparse.Namespace) -> Result:
    """``plan show``."""
    plan, registry = load_plan(args.file, args.set), Registry()
    found, pointer = ages(plan, registry), registry.pointer()
    if not args.json:
        console.print(picture.tree(plan, found))
        console.print(picture.ladder(plan))
    say(f"current release: {pointer.current or 'none'}, backup {pointer.backup or 'none'}")
    last = Plans(registry.database).last()
    return {
        "digest": plan.digest(),
        "order": plan.order(),
        "plan": plain(plan),
        "ages": plain(found),
        "pointer": plain(pointer),
        "in_force": last.digest if last else None,
    }


def diff(args: argparse.Namespace) -> Result:
    """``plan diff A B``: two files; ``applied`` is the plan in force."""
    before, after = _tree(args.before), load_plan(args.after or args.file, args.set)
    found = compare(before, after)
    if found and not args.json:
        console.print(picture.changes(found))
    say(f"{len(found)} fields differ: {worst(found)}" if found else "no difference")
    return {"category": worst(found), "changes": plain(found)}


def _tree(named: str) -> Any:
    if named != IN_FORCE:
        return load_plan(Path(named))
    last = Plans(Registry().database).last()
    if last is None:
        raise PlanError("no plan is in force yet", where=IN_FORCE, mend="Apply one with `./beforehand plan apply`.")
    return msgspec.json.decode(last.plan)


def explain(args: argparse.Namespace) -> Result:
    """``plan explain``."""
    frozen = _freeze(args)
    _tell(frozen, args)
    if args.out:
        frozen.write(args.out)
        say(f"frozen as {args.out}: `./beforehand plan apply {args.out}` does this and nothing else")
    return _explained(frozen, args.core_hour)


def apply(args: argparse.Namespace) -> Result:
    """``plan apply``, of a frozen plan or of what would be explained now."""
    frozen = read_frozen(args.frozen) if args.frozen else _freeze(args)
    last = Plans(Registry().database).last()
    if last is None or last.id != frozen.id:
        _tell(frozen, args)
    done = _evaluator().apply(frozen, why=args.why or "asked for", breaking=args.breaking)
    say(f"✓ {'applied' if done['changed'] else 'nothing changed'} ({done['seconds']} s)")
    return done


def _evaluator() -> Evaluator:
    registry = Registry()
    return Evaluator(registry, reach=partial(reach, registry))


def _freeze(args: argparse.Namespace) -> Frozen:
    return _evaluator().freeze(args.file or plan_path(), args.set, args.data)


def _tell(frozen: Frozen, args: argparse.Namespace) -> None:
    if frozen.work.changes and not args.json:
        console.print(picture.changes(frozen.work.changes))
    for line in picture.work(frozen, args.core_hour):
        say(line)


def _explained(frozen: Frozen, core_hour: float | None) -> dict[str, Any]:
    work = frozen.work
    return {
        "id": frozen.id,
        "digest": frozen.digest,
        "category": work.category,
        "changes": plain(work.changes),
        "stages": plain(work.stages),
        "restart": work.restart,
        "reach": plain(work.reach),
        "expected": picture.cost(work.running, core_hour),
        "nothing": work.nothing and not frozen.first,
        "state": work.state,
    }


def _add(acts: Any, name: str, act: Callable[[argparse.Namespace], Result], about: str, example: str) -> Any:
    sub = verb(acts, name, act, about, f"plan {example}")
    sub.add_argument("--file", type=Path, help="a plan other than $BEFOREHAND_PLAN or plan.toml")
    sub.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a value")
    return sub


def _price(text: str) -> float:
    price = float(text)
    if not 0 <= price < float("inf"):
        raise ValueError
    return price


def _add_work(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--data", default="journey", metavar="NAME", help="the data set (default: journey)")
    sub.add_argument(
        "--core-hour",
        type=_price,
        metavar="PRICE",
        default=os.environ.get(CORE_HOUR) or None,  # text: argparse reads it by ``type`` too, and refuses it so
        help=f"of a core for an hour, for the expected cost (default: ${CORE_HOUR})",
    )


def run() -> None:
    """The verb's parser."""
    top, verbs = parser("plan", "The plan.")
    acts = verbs.add_parser("plan", help="see, compare, explain and apply the plan").add_subparsers(
        dest="act", required=True, metavar="check|show|diff|explain|apply|advise"
    )
    _add(acts, "check", check, "does the plan hold?", "check")
    _add(acts, "show", show, "the chain as a picture, with ages", "show")
    two = _add(acts, "diff", diff, "what differs between two plans, and what it costs", "diff applied plan.toml")
    two.add_argument("before", help=f"a plan's file, or `{IN_FORCE}`: the plan in force")
    two.add_argument("after", nargs="?", type=Path, help="a plan's file (default: the plan)")
    one = _add(
        acts, "explain", explain, "what applying the plan would do, why, and its cost", "explain --out next.json"
    )
    _add_work(one)
    one.add_argument("--out", type=Path, metavar="FILE", help="freeze it, to be applied as it is or not at all")
    do = _add(acts, "apply", apply, "do what the plan says: build, promote, write it down", 'apply --why "new season"')
    _add_work(do)
    do.add_argument("frozen", nargs="?", type=Path, help="what `explain --out` wrote (default: as explained now)")
    do.add_argument("--why", default="", help="kept with the act")
    do.add_argument("--breaking", action="store_true", help="also changes that devices and stores must follow")
    about = "where precompute pays, from measured costs and the traffic, under budgets"
    advise_verb.arguments(_add(acts, "advise", advise_verb.advise_verb, about, "advise --redis-bytes 256MB"))
    main(top)


if __name__ == "__main__":
    run()
