"""``beforehand plan`` and ``beforehand contracts``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table
from rich.tree import Tree

from schemas.cli import console, main, parser, say, verb
from schemas.errors import BeforehandError
from schemas.json_schema import check_contracts, write_contracts
from schemas.plan import NO_FALLBACK, Asset, Plan, load_plan
from schemas.units import human_seconds


def plan_verb(args: argparse.Namespace) -> dict[str, Any]:
    """``plan check`` and ``plan show``."""
    plan = load_plan(args.file, args.set)
    if args.what == "show" and not args.json:
        console.print(tree(plan))
        console.print(ladder(plan))
    elif not args.json:
        say(f"[green]✓[/green] the plan holds: {len(plan.assets)} assets, digest {plan.digest()}")
    return {
        "digest": plan.digest(),
        "order": plan.order(),
        "plan": msgspec.to_builtins(plan, enc_hook=float),
    }


def tree(plan: Plan) -> Tree:
    """The chain as a picture: each asset under the tier that computes it."""
    top = Tree(f"[bold]plan[/bold] {plan.digest()}")
    tiers: dict[str, Tree] = {}
    for name in plan.order():
        asset = plan.assets[name]
        if asset.tier not in tiers:
            tiers[asset.tier] = top.add(f"[bold]{asset.tier}[/bold]")
        tiers[asset.tier].add(_asset(name, asset))
    return top


def _asset(name: str, asset: Asset) -> str:
    parts = [
        f"[cyan]{name}[/cyan] from {', '.join(asset.inputs)}",
        f"fresh {human_seconds(asset.fresh_for)}, usable {human_seconds(asset.usable_for)}",
        f"budget {human_seconds(asset.budget)}",
        "no stand-in" if asset.fallback == NO_FALLBACK else f"stand-in {asset.fallback}",
    ]
    return " · ".join(parts + ([f"at {asset.schedule}"] if asset.schedule else []))


def ladder(plan: Plan) -> Table:
    """The online budget and its rungs."""
    table = Table("budget", "slack", "ladder, best first", title="online", title_justify="left")
    table.add_row(human_seconds(plan.online.budget), human_seconds(plan.online.slack), " → ".join(plan.online.ladder))
    return table


def contracts_verb(args: argparse.Namespace) -> dict[str, Any]:
    """``contracts check`` and ``contracts write``."""
    folder = Path(__file__).parent / "json"
    if args.what == "write":
        names = write_contracts(folder)
        say(f"wrote {len(names)} schemas to {folder}")
        return {"written": names}
    stale = check_contracts(folder)
    if stale:
        raise BeforehandError(
            "the JSON Schemas differ from the code",
            where=", ".join(stale),
            mend="Run `./beforehand contracts write` and read the difference: old readers must still cope.",
        )
    say("[green]✓[/green] the JSON Schemas agree with the code")
    return {"stale": stale}


def run() -> None:
    """The verbs of this room."""
    top, verbs = parser("contracts", "The plan and the contracts between the rooms.")
    plan = verb(verbs, "plan", plan_verb, "check the plan, or show it as a picture", "plan show")
    plan.add_argument("what", choices=("check", "show"))
    plan.add_argument("--file", type=Path, help="a plan other than $BEFOREHAND_PLAN or plan.toml")
    plan.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a value")
    contracts = verb(verbs, "contracts", contracts_verb, "check or write the JSON Schemas", "contracts check")
    contracts.add_argument("what", choices=("check", "write"))
    main(top)


if __name__ == "__main__":
    run()
