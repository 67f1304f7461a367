"""The stages in order, with what each depends on."""

from __future__ import annotations

from offline.build.encode_stage import encode
from offline.build.evaluate_stage import evaluate
from offline.build.export_stage import export
from offline.build.index_stage import build_index
from offline.build.lists_stage import make_lists
from offline.build.publish_stage import is_current, promote, publish, published
from offline.build.stage import Build, Record, Stage, locked, require, run_stage
from offline.build.train_stage import train
from schemas.plan import Plan

TRAINING = ("events.parquet", "profiles.parquet")
HELD_BACK = ("replay.jsonl", "targets.jsonl")


def _none(_plan: Plan) -> object:
    return None


STAGES = (
    Stage("encode", encode, _none, ("catalogue.parquet",)),
    Stage(
        "index",
        build_index,
        lambda plan: (plan.index, plan.model.window, plan.model.seed, plan.nearline.neighbours),
        ("catalogue.parquet", "events.parquet", "profiles.parquet"),
        ("encode",),
    ),
    Stage("train", train, lambda plan: (plan.model, plan.online.k_max), TRAINING, ("index",)),
    Stage("evaluate", evaluate, _none, (*TRAINING, *HELD_BACK), ("train",)),
    Stage("lists", make_lists, _none, TRAINING, ("index",)),
    Stage("export", export, _none, (), ("evaluate",)),
    Stage(
        "publish", publish, _none, ("catalogue.parquet", "profiles.parquet"), ("export", "lists", "evaluate"), published
    ),
    Stage("promote", promote, lambda plan: plan.gate, (), ("publish",), is_current),
)
NAMES = tuple(stage.name for stage in STAGES)


def run_build(build: Build, stage: str = "all") -> dict[str, Record]:
    """Run every stage, or one of them on what the stages before it left.

    Raises:
        BeforehandError: a stage refuses its inputs, or one before it has not run.
    """
    with locked(build):
        for one in STAGES:
            if stage == "all":
                run_stage(one, build)
            elif one.name != stage:
                require(build, one)
            else:
                run_stage(one, build)
                break
    return build.records
