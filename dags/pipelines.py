"""What the plan says must be done, in which order, when and within what time. Pure: no Airflow, no I/O.

One *pipeline* becomes one DAG. The assets of the plan's offline tier each have one; what follows a release (publishing,
the devices' bundle, promotion) and what watches over all of it have theirs. A pipeline waits for the assets of others.
"""

from __future__ import annotations

import msgspec

from dags.steps import (
    BACKFILL_FIELDS,
    BUILD_FIELDS,
    PROMOTE_FIELDS,
    RELEASE_FIELDS,
    RETRIES,
    STEPS_OF_ASSET,
    WATCH_FIELDS,
    Step,
    in_a_row,
)
from schemas.errors import PlanError
from schemas.names import Tier
from schemas.plan import Asset, Plan
from schemas.plan_types import SOURCES

RELEASE, BUNDLE, CURRENT, DRIFT = "release", "edge_bundle", "current_release", "drift"
DAG_OF_ASSET = {"cohort_lists": "lists"}
"""Of the assets whose DAG has a shorter name."""
OTHER_LIMIT_S = 1800.0
"""Limit of a task that makes no asset of the plan."""
LONGEST_WATCH_S = 7200.0
SHORTEST_WATCH_S = 300.0


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """One DAG. ``steps`` are in an order in which they can run."""

    id: str
    about: str
    steps: tuple[Step, ...]
    fields: tuple[str, ...]  # of the form
    deadline_s: float  # an alert when a run has not ended so long after it was queued
    cron: str | None = None  # UTC
    every_s: float | None = None
    waits_for: tuple[str, ...] = ()  # starts when each of these assets is new
    also_on: tuple[str, ...] = ()  # starts when any of these is new, beside the times
    by_day: bool = False  # the steps are repeated for each day of a range
    asset: Asset | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """Assets that are new when it has run."""
        return tuple(name for step in self.steps for name in step.outputs)


def derive_pipelines(plan: Plan) -> tuple[Pipeline, ...]:
    """All DAGs of ``plan``, each after those it waits for.

    Raises:
        PlanError: an offline asset that no stage makes, or offline assets with different schedules.
    """
    offline = {name: plan.assets[name] for name in plan.order() if plan.assets[name].tier is Tier.OFFLINE}
    cron, before = _cron(offline), edges(offline)
    built = [_of_asset(name, asset, before[name], offline, cron) for name, asset in offline.items()]
    return (*built, _release(before[RELEASE]), _bundle(), _promote(), _backfill(offline), _quality_watch(plan))


def chain_of(pipelines: tuple[Pipeline, ...]) -> tuple[Pipeline, ...]:
    """Those that lead from the data to the current release."""
    return tuple(one for one in pipelines if one.id not in ("backfill", "quality_watch"))


def _of_asset(
    name: str, asset: Asset, before: tuple[str, ...], offline: dict[str, Asset], cron: str | None
) -> Pipeline:
    if name not in STEPS_OF_ASSET:
        raise PlanError(
            "no stage of `./beforehand build` makes this offline asset",
            where=f"plan.toml assets.{name}",
            mend=f"Offline assets with stages: {', '.join(STEPS_OF_ASSET)}.",
        )
    limit_s = float(asset.budget)
    steps = in_a_row(STEPS_OF_ASSET[name], limit_s=limit_s, inputs=tuple(asset.inputs), outputs=(name,))
    first = name == next(iter(offline))
    if first:  # it brings the data; whatever else needs nothing but data waits for these
        sources = tuple(s for s in SOURCES if any(s in other.inputs for other in offline.values()))
        data = Step(id="data", limit_s=OTHER_LIMIT_S, outputs=sources)
        steps = (data, msgspec.structs.replace(steps[0], after=("data",)), *steps[1:])
    return Pipeline(
        id=DAG_OF_ASSET.get(name, name),
        about=f"Makes {name}: {' → '.join(step.id for step in steps)}",
        steps=steps,
        fields=BUILD_FIELDS,
        deadline_s=limit_s + (OTHER_LIMIT_S if first else 0),
        cron=cron if first else None,
        also_on=(DRIFT,) if first else (),
        waits_for=() if first else before or tuple(asset.inputs),
        asset=asset,
    )


def _release(before: tuple[str, ...]) -> Pipeline:
    steps = in_a_row(("publish",), limit_s=OTHER_LIMIT_S, inputs=before, outputs=(RELEASE,))
    return Pipeline(
        id="release",
        about="Puts what was built into one signed release and enters it in the registry as future",
        steps=steps,
        fields=BUILD_FIELDS,
        deadline_s=OTHER_LIMIT_S,
        waits_for=before,
    )


def _bundle() -> Pipeline:
    return Pipeline(
        id="edge_bundle",
        about="Makes what devices download, from the new release; nobody gets it before the promotion",
        steps=in_a_row(("bundle",), limit_s=OTHER_LIMIT_S, inputs=(RELEASE,), outputs=(BUNDLE,)),
        fields=RELEASE_FIELDS,
        deadline_s=OTHER_LIMIT_S,
        waits_for=(RELEASE,),
    )


def _promote() -> Pipeline:
    """A watch has no second try: what it saw once is enough to go back."""
    steps = (
        Step(id="verify", group="check", limit_s=OTHER_LIMIT_S, inputs=(BUNDLE,)),
        Step(id="gate", group="check", after=("verify",), limit_s=OTHER_LIMIT_S),
        Step(id="canary", group="try", after=("gate",), limit_s=OTHER_LIMIT_S),
        Step(id="watch_canary", group="try", after=("canary",), limit_s=LONGEST_WATCH_S, retries=0),
        Step(id="promote", group="serve", after=("watch_canary",), limit_s=OTHER_LIMIT_S),
        Step(id="watch", group="serve", after=("promote",), limit_s=LONGEST_WATCH_S, retries=0),
        Step(id="undo", after=("watch_canary", "watch"), limit_s=OTHER_LIMIT_S, when_failed=True),
        Step(id="rollout", after=("watch",), limit_s=OTHER_LIMIT_S, outputs=(CURRENT,)),
    )
    return Pipeline(
        id="promote",
        about="Lets some users try the release, makes it current, watches the service, and goes back if it must",
        steps=steps,
        fields=PROMOTE_FIELDS,
        deadline_s=LONGEST_WATCH_S,
        waits_for=(BUNDLE,),
    )


def _backfill(offline: dict[str, Asset]) -> Pipeline:
    """Every build is a snapshot of its day, so the newest days come first; nothing is promoted."""
    names = ("data", *(stage for asset in offline for stage in STEPS_OF_ASSET[asset]), "publish")
    limit_s = max((float(asset.budget) for asset in offline.values()), default=OTHER_LIMIT_S)
    return Pipeline(
        id="backfill",
        about="Builds releases of past days, the newest first and no more than asked for; promotes none",
        steps=in_a_row(names, limit_s=limit_s),
        fields=BACKFILL_FIELDS,
        deadline_s=limit_s * len(names),
        by_day=True,
    )


def _quality_watch(plan: Plan) -> Pipeline:
    """As often as the asset that ages fastest of those that are kept."""
    kept = [asset for asset in plan.assets.values() if asset.tier in (Tier.OFFLINE, Tier.NEARLINE)]
    every_s = max(SHORTEST_WATCH_S, min(float(asset.fresh_for) for asset in kept))
    watched = ("freshness", "parity", "dead_letters")
    steps = [Step(id=name, limit_s=OTHER_LIMIT_S, retries=RETRIES) for name in watched]
    drift = Step(id="drift", limit_s=OTHER_LIMIT_S, outputs=(DRIFT,), skip_unless="drifted")
    return Pipeline(
        id="quality_watch",
        about="Looks whether everything is fresh, equal in all tiers, and like what the model was trained on",
        steps=(*steps, drift),
        fields=WATCH_FIELDS,
        deadline_s=OTHER_LIMIT_S,
        every_s=every_s,
    )


def _cron(offline: dict[str, Asset]) -> str | None:
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
    """For each offline asset and for the release the assets just before it; what one implies is left out."""
    direct = {name: [i for i in asset.inputs if i in offline] for name, asset in offline.items()}
    direct[RELEASE] = list(offline)
    all_before: dict[str, set[str]] = {}
    for name, inputs in direct.items():  # in the plan's order: inputs come first
        all_before[name] = {*inputs, *(old for i in inputs for old in all_before[i])}
    return {
        name: tuple(i for i in inputs if not any(i in all_before[other] for other in inputs))
        for name, inputs in direct.items()
    }
