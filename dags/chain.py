"""What the plan says must be built, in which order, when and within what time. Pure: no Airflow, no I/O.

The stages are those of ``./beforehand build`` (the offline room), which skip work whose inputs did not change.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from schemas.errors import PlanError
from schemas.names import Tier
from schemas.plan import Asset, Plan
from schemas.plan_types import SOURCES

DAG_ID = "precompute"
STAGES_OF_ASSET: dict[str, tuple[str, ...]] = {
    "semantic_index": ("encode", "index"),
    "generator": ("train", "evaluate"),
    "cohort_lists": ("lists",),
}
DATA, RELEASE = "data", "release"
RELEASE_STAGES = ("export", "publish", "promote")
OTHER_LIMIT_S = 1800.0
"""Limit of a task that makes no asset of the plan: fetching the data, and the release's own stages."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Stages that run one after the other and together make one thing."""

    name: str
    stages: tuple[str, ...]
    after: tuple[str, ...]  # groups that must be done first
    inputs: tuple[str, ...]  # what it is made from: assets and sources
    outputs: tuple[str, ...]
    limit_s: float  # of each stage, after which it is stopped
    asset: Asset | None = None  # None: data and release


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The offline work of one release. ``groups`` are in an order in which they can run."""

    schedule: str | None  # cron, UTC; None: only when somebody starts it
    groups: tuple[Group, ...]

    def stages(self) -> list[str]:
        """Every stage, in an order in which they can run one by one."""
        return [stage for group in self.groups for stage in group.stages]

    def upstream(self) -> dict[str, list[str]]:
        """For each stage the stages just before it."""
        last = {group.name: group.stages[-1] for group in self.groups}
        found: dict[str, list[str]] = {}
        for group in self.groups:
            found[group.stages[0]] = [last[name] for name in group.after]
            found.update({later: [earlier] for earlier, later in pairwise(group.stages)})
        return found


def derive_chain(plan: Plan) -> Chain:
    """The chain of ``plan``'s offline assets: data first, the release last.

    Raises:
        PlanError: an offline asset that no stage makes, or offline assets with different schedules.
    """
    offline = {name: plan.assets[name] for name in plan.order() if plan.assets[name].tier is Tier.OFFLINE}
    schedule = _schedule(offline)
    before = edges(offline)
    sources = tuple(s for s in SOURCES if any(s in asset.inputs for asset in offline.values()))
    data = Group(name=DATA, stages=(DATA,), after=(), inputs=(), outputs=sources, limit_s=OTHER_LIMIT_S)
    release = Group(
        name=RELEASE,
        stages=RELEASE_STAGES,
        after=before[RELEASE],
        inputs=tuple(offline),
        outputs=(RELEASE,),
        limit_s=OTHER_LIMIT_S,
    )
    assets = [_asset_group(name, asset, before[name]) for name, asset in offline.items()]
    return Chain(schedule=schedule, groups=(data, *assets, release))


def _asset_group(name: str, asset: Asset, after: tuple[str, ...]) -> Group:
    if name not in STAGES_OF_ASSET:
        raise PlanError(
            "no stage of `./beforehand build` makes this offline asset",
            where=f"plan.toml assets.{name}",
            mend=f"Offline assets with stages: {', '.join(STAGES_OF_ASSET)}.",
        )
    return Group(
        name=name,
        stages=STAGES_OF_ASSET[name],
        after=after,
        inputs=tuple(asset.inputs),
        outputs=(name,),
        limit_s=float(asset.budget),
        asset=asset,
    )


def _schedule(offline: dict[str, Asset]) -> str | None:
    """The one schedule. An asset without one is made whenever the others are."""
    named = {name: asset.schedule for name, asset in offline.items() if asset.schedule is not None}
    if len(set(named.values())) > 1:
        raise PlanError(
            "the offline assets of one release are made together, so they need one schedule",
            where=" and ".join(f"assets.{name}.schedule" for name in named),
            value=", ".join(str(schedule) for schedule in named.values()),
            mend="Write the same one for each, or leave it out of all but one: unchanged stages cost nothing.",
        )
    return next(iter(named.values()), None)


def edges(offline: dict[str, Asset]) -> dict[str, tuple[str, ...]]:
    """For each group the groups just before it; what an edge already implies is left out."""
    direct = {name: [i for i in asset.inputs if i in offline] for name, asset in offline.items()}
    direct[RELEASE] = list(offline)
    all_before: dict[str, set[str]] = {}
    for name, inputs in direct.items():  # in the plan's order: inputs come first
        all_before[name] = {*inputs, *(old for i in inputs for old in all_before[i])}
    return {
        name: tuple(i for i in inputs if not any(i in all_before[other] for other in inputs)) or (DATA,)
        for name, inputs in direct.items()
    }
