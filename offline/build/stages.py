"""The stages in order, with what each depends on."""

from __future__ import annotations

import hashlib

from offline.build.accounts import one_at_a_time
from offline.build.encode_stage import encode
from offline.build.evaluate_stage import evaluate
from offline.build.export_stage import export
from offline.build.index_stage import build_index
from offline.build.lists_stage import make_lists
from offline.build.publish_stage import is_current, promote, publish, published
from offline.build.stage import Build, Judgement, Record, Stage, judge, require, run_stage
from offline.build.train_stage import train
from schemas.errors import StoreError
from schemas.plan import Plan

TRAINING = ("events.parquet", "profiles.parquet")
HELD_BACK = ("replay.jsonl", "targets.jsonl")


def _none(_plan: Plan) -> object:
    return None


STAGES = (
    Stage("encode", encode, lambda plan: plan.index.encoder, ("catalogue.parquet",)),
    Stage(
        "index",
        build_index,
        lambda plan: (plan.index, plan.model.window, plan.model.seed, plan.nearline.neighbours),
        ("catalogue.parquet", "events.parquet", "profiles.parquet"),
        ("encode",),
        makes="semantic_index",
    ),
    Stage("train", train, lambda plan: (plan.model, plan.online.k_max), TRAINING, ("index",)),
    Stage("evaluate", evaluate, _none, (*TRAINING, *HELD_BACK), ("train",)),
    Stage("export", export, lambda plan: plan.export, (), ("evaluate",), makes="generator"),
    Stage("lists", make_lists, _none, TRAINING, ("export",), makes="cohort_lists"),
    Stage(
        "publish", publish, _none, ("catalogue.parquet", "profiles.parquet"), ("export", "lists", "evaluate"), published
    ),
    Stage("promote", promote, lambda plan: plan.gate, (), ("publish",), is_current),
)
NAMES = tuple(stage.name for stage in STAGES)


def run_build(build: Build, stage: str = "all", expect: str = "") -> dict[str, Record]:
    """Run every stage, or one of them on what the stages before it left.

    Args:
        build: what to build.
        stage: ``all``, or a stage's name.
        expect: refuse to do anything else than what was explained: the explanation's ``digest``.

    Raises:
        BeforehandError: a stage refuses its inputs, or one before it has not run.
        StoreError: ``expect`` is not what would be done now.
    """
    with one_at_a_time(build.registry.database, build.name):
        if expect and digest(explain(build)) != expect:
            raise StoreError(
                "the plan is out of date: something changed since it was made",
                where=f"build of {build.name}",
                mend="Look again with `./beforehand plan explain`.",
            )
        for one in STAGES:
            if stage == "all":
                run_stage(one, build)
            elif one.name != stage:
                require(build, one)
            else:
                run_stage(one, build)
                break
    return build.records


def explain(build: Build) -> dict[str, Judgement]:
    """What ``run_build`` would do to each stage, by the judge that it asks itself. Nothing is changed."""
    judged = Build(build.name, build.plan, force=build.force)
    found: dict[str, Judgement] = {}
    for one in STAGES:
        found[one.name] = judge(one, judged)
        judged.records[one.name] = Record(found[one.name].hash, {}, 0.0)
    return found


def digest(found: dict[str, Judgement]) -> str:
    """Changes whenever another stage would run, or on other inputs."""
    text = "\n".join(f"{name} {one.hash} {bool(one.why)}" for name, one in found.items())
    return hashlib.sha256(text.encode()).hexdigest()[:16]
