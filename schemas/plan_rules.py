"""What must hold between the fields of a plan, beyond their types."""

from __future__ import annotations

import difflib
import math
from graphlib import CycleError, TopologicalSorter

from schemas.cron import is_cron
from schemas.errors import PlanError
from schemas.names import Rung, Tier
from schemas.plan_changes import leaves
from schemas.plan_types import GATE_METRICS, NO_FALLBACK, SOURCES, Asset, Plan, Source

REQUIRED = ("semantic_index", "generator", "cohort_lists", "intent_state", "candidates", "prompt_embedding")


def check_rules(plan: Plan, source: Source) -> None:
    """Raises PlanError for the first rule that does not hold."""
    if missing := [name for name in REQUIRED if name not in plan.assets]:
        raise PlanError("assets are missing", where=source.where("assets"), value=missing, mend="Declare them.")
    for name, asset in plan.assets.items():
        _check_inputs(plan, f"assets.{name}", asset, source)
        _check_fallback(plan, f"assets.{name}", asset, source)
        _check_times(f"assets.{name}", asset, source)
    _check_schedules(plan, source)
    _check_cycles(plan, source)
    _check_numbers(plan, source)
    _check_gate(plan, source)
    _check_above_zero(plan, source)


def _check_inputs(plan: Plan, field: str, asset: Asset, source: Source) -> None:
    known = [*plan.assets, *SOURCES]
    for given in asset.inputs:
        if given not in known:
            near = difflib.get_close_matches(given, known, 1)
            mend = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
            raise PlanError("unknown input", where=source.where(f"{field}.inputs"), value=given, mend=mend)


def _check_fallback(plan: Plan, field: str, asset: Asset, source: Source) -> None:
    where = source.where(f"{field}.fallback")
    if asset.fallback != NO_FALLBACK and asset.fallback not in plan.assets:
        mend = f'Name an asset ({", ".join(plan.assets)}) or "none".'
        raise PlanError("unknown fallback", where=where, value=asset.fallback, mend=mend)
    if asset.tier in (Tier.NEARLINE, Tier.EDGE) and asset.fallback == NO_FALLBACK:
        raise PlanError(
            "an asset that can be missing at a request needs a fallback",
            where=where,
            value=asset.fallback,
            mend="Name the offline asset that stands in for it.",
        )


def _check_times(field: str, asset: Asset, source: Source) -> None:
    if asset.usable_for < asset.fresh_for:
        raise PlanError(
            "usable_for is shorter than fresh_for",
            where=source.where(f"{field}.usable_for"),
            value=f"{float(asset.usable_for)} s",
            mend="Make it at least as long.",
        )
    if asset.schedule is not None and (asset.tier is not Tier.OFFLINE or not is_cron(asset.schedule)):
        raise PlanError(
            "a schedule is five cron fields, on offline assets only",
            where=source.where(f"{field}.schedule"),
            value=asset.schedule,
            mend='Write "0 3 * * *" for every day at 03:00 UTC.',
        )


def _check_schedules(plan: Plan, source: Source) -> None:
    named = {name: asset.schedule for name, asset in plan.assets.items() if asset.schedule is not None}
    first = next(iter(named.values()), None)
    for name, schedule in named.items():
        if schedule != first:
            raise PlanError(
                "the offline assets of one release are made together, so they need one schedule",
                where=source.where(f"assets.{name}.schedule"),
                value=schedule,
                mend=f'Write "{first}", or leave it out of all but one: unchanged stages cost nothing.',
            )


def _check_cycles(plan: Plan, source: Source) -> None:
    edges = {
        "inputs": {n: [i for i in a.inputs if i in plan.assets] for n, a in plan.assets.items()},
        "fallback": {n: [a.fallback] for n, a in plan.assets.items() if a.fallback != NO_FALLBACK},
    }
    for field, graph in edges.items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = error.args[1]
            raise PlanError(
                f"assets depend on each other in a circle: {' → '.join(reversed(circle))}",
                where=source.where(f"assets.{circle[0]}.{field}"),
                mend="Take one of these out.",
            ) from None


def _check_numbers(plan: Plan, source: Source) -> None:
    rungs = plan.online.ladder
    lifetime = plan.nearline.state_lifetime
    rules: list[tuple[bool, str, object, str]] = [
        (plan.model.width % plan.model.heads == 0, "model.heads", plan.model.heads, "Make it divide model.width."),
        (
            lifetime >= plan.assets["intent_state"].usable_for,
            "nearline.state_lifetime",
            f"{float(lifetime)} s",
            "Make it at least assets.intent_state.usable_for: a shorter one cuts returning users' windows.",
        ),
        (bool(rungs), "online.ladder", rungs, "Name at least one rung."),
        (Rung.NONE not in rungs, "online.ladder", rungs, 'Take "none" out: it is what is left.'),
        (len(set(rungs)) == len(rungs), "online.ladder", rungs, "Name each rung once."),
    ]
    for holds, field, value, mend in rules:
        if not holds:
            raise PlanError("does not hold", where=source.where(field), value=value, mend=mend)


def _check_above_zero(plan: Plan, source: Source) -> None:
    """Times that nothing can be done in, and numbers that TOML can write and nobody can count to (``inf``)."""
    fields = dict(leaves(plan))
    times = ["online.budget", "online.store_timeout", "nearline.refresh", "edge.refresh"]
    times += [f"assets.{name}.{key}" for name in plan.assets for key in ("fresh_for", "budget")]
    for field, value in fields.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise PlanError("not a finite number", where=source.where(field), value=value, mend="Write a number.")
        if field in times and value == 0:
            raise PlanError("no time at all", where=source.where(field), value=f"{value} s", mend="Make it above 0.")


def _check_gate(plan: Plan, source: Source) -> None:
    for name in plan.gate:
        if name not in GATE_METRICS:
            near = difflib.get_close_matches(name, GATE_METRICS, 1)
            mend = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(GATE_METRICS)}."
            raise PlanError("unknown metric", where=source.where(f"gate.{name}"), value=name, mend=mend)
