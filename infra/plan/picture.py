"""What people read: the chain as a tree, changes as a table, work as a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.tree import Tree

from infra.plan.ages import Age
from infra.plan.frozen import Frozen, StageWork
from schemas.plan import NO_FALLBACK, Asset, Plan
from schemas.plan_changes import Change
from schemas.units import human_seconds

COLOURS = {"FRESH": "green", "STALE": "yellow", "EXPIRED": "red", "MISSING": "red"}


def tree(plan: Plan, ages: dict[str, Age]) -> Tree:
    """Each asset under the tier that computes it, with its age."""
    top = Tree(f"[bold]plan[/bold] {plan.digest()}")
    tiers: dict[str, Tree] = {}
    for name in plan.order():
        asset = plan.assets[name]
        if asset.tier not in tiers:
            tiers[asset.tier] = top.add(f"[bold]{asset.tier}[/bold]")
        tiers[asset.tier].add(_asset(name, asset, ages[name]))
    return top


def _asset(name: str, asset: Asset, age: Age) -> str:
    colour = COLOURS.get(age.state, "dim")
    old = f" {human_seconds(age.age_s)} old" if age.age_s is not None else ""
    parts = [
        f"[cyan]{name}[/cyan] from {', '.join(asset.inputs)}",
        f"fresh {human_seconds(asset.fresh_for)}, usable {human_seconds(asset.usable_for)}",
        f"budget {human_seconds(asset.budget)}",
        "no stand-in" if asset.fallback == NO_FALLBACK else f"stand-in {asset.fallback}",
    ]
    parts += [f"at {asset.schedule}"] if asset.schedule else []
    return f"{' · '.join(parts)}\n[{colour}]{age.state}[/{colour}]{old} [dim]{age.note}[/dim]"


def ladder(plan: Plan) -> Table:
    """The online budget and its rungs."""
    table = Table("budget", "slack", "ladder, best first", title="online", title_justify="left")
    table.add_row(human_seconds(plan.online.budget), human_seconds(plan.online.slack), " → ".join(plan.online.ladder))
    return table


def changes(found: Sequence[Change]) -> Table:
    """Fields that differ."""
    table = Table("field", "before", "after", "category", "start again")
    for one in found:
        before, after = (_value(one.field, value) for value in (one.before, one.after))
        table.add_row(one.field, before, after, str(one.category), ", ".join(one.readers) or "–")
    return table


def _value(field: str, value: Any) -> str:
    times = ("fresh_for", "usable_for", "budget", "slack", "refresh", "timeout", "lifetime", "max_future")
    if isinstance(value, (int, float)) and field.endswith(times):
        return human_seconds(float(value))
    return "absent" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def work(frozen: Frozen, core_hour: float | None) -> list[str]:
    """What applying would do, line by line."""
    found = frozen.work
    if found.nothing and not frozen.first:
        return ["nothing to do: everything is as the plan says"]
    lines = ["no plan is in force yet: this would be the first"] if frozen.first else []
    lines += [_stage(stage) for stage in found.stages]
    if found.running:
        lines += [_cost(cost(found.running, core_hour)), _reach(frozen)]
    if found.restart:
        lines.append(f"start again, to read the new values: {', '.join(found.restart)}")
    return lines


def _stage(stage: StageWork) -> str:
    if not stage.runs:
        return f"  {stage.stage:<9} unchanged"
    usual = stage.usual
    text = "never built: cost unknown"
    if usual is not None:
        of = "" if usual.of_data else " of other data"
        text = f"usually {human_seconds(usual.seconds)}, {usual.num_bytes:,} bytes ({usual.num_builds} builds{of})"
    return f"  {stage.stage:<9} runs: {', '.join(stage.why)}; {text}"


def cost(running: Sequence[StageWork], core_hour: float | None) -> dict[str, Any]:
    """``minutes``, ``core_minutes``, ``bytes``, ``money`` (None without a price), ``unknown`` stages."""
    known = [stage.usual for stage in running if stage.usual]
    cpu_s = sum(usual.cpu_s for usual in known)
    return {
        "minutes": round(sum(usual.seconds for usual in known) / 60, 2),
        "core_minutes": round(cpu_s / 60, 2),
        "bytes": sum(usual.num_bytes for usual in known),
        "money": None if core_hour is None else round(cpu_s / 3600 * core_hour, 4),
        "unknown": [stage.stage for stage in running if stage.usual is None],
    }


def _cost(found: dict[str, Any]) -> str:
    text = f"expected: {found['minutes']} min, {found['core_minutes']} core-min, {found['bytes']:,} bytes"
    text += f", {found['money']} by the price given" if found["money"] is not None else ""
    return text + (f"; unknown: {', '.join(found['unknown'])}" if found["unknown"] else "")


def _reach(frozen: Frozen) -> str:
    found = frozen.work.reach
    items = f"{found.num_items:,} items; " if found.num_items else ""
    if found.num_states is None:
        return f"a new release touches: {items}what is in Redis is not known: it can't be asked"
    size = f" ({found.state_bytes:,} bytes)" if found.state_bytes else ""
    keys = f"{found.num_states:,} keys in Redis{size}"
    return f"a new release touches: {items}{keys}, each made anew at its user's next event"
