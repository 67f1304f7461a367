"""The DAGs follow the plan: order, limits, schedule; and a plan that makes no chain is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags.pipelines import OTHER_LIMIT_S, RELEASE, Pipeline, chain_of, derive_pipelines, edges
from dags.steps import STEPS_OF_ASSET
from schemas.errors import PlanError
from schemas.names import Tier
from schemas.plan import Asset, load_plan
from schemas.plan_types import Duration

PLAN = Path(__file__).resolve().parents[2] / "plan.toml"


def pipelines_with(*overrides: str) -> dict[str, Pipeline]:
    return {one.id: one for one in derive_pipelines(load_plan(PLAN, overrides))}


def asset(*inputs: str, schedule: str | None = None) -> Asset:
    time = Duration(60.0)
    return Asset(
        tier=Tier.OFFLINE,
        inputs=list(inputs),
        fresh_for=time,
        usable_for=time,
        budget=time,
        fallback="none",
        schedule=schedule,
    )


def test_the_chain_runs_the_stages_of_the_build_and_ends_with_a_promotion() -> None:
    chain = chain_of(derive_pipelines(load_plan(PLAN)))
    assert [step.id for one in chain for step in one.steps] == [
        *("data", "encode", "index", "train", "evaluate", "export", "lists", "publish", "bundle"),
        *("verify", "gate", "canary", "watch_canary", "promote", "watch", "undo", "rollout"),
    ]


def test_there_is_a_dag_for_each_of_what_an_operator_thinks_in() -> None:
    assert list(pipelines_with()) == [
        *("semantic_index", "generator", "lists", "release", "edge_bundle", "promote", "backfill", "quality_watch"),
    ]


def test_every_dag_waits_for_what_another_makes() -> None:
    pipelines = pipelines_with()
    made: set[str] = set()
    for one in pipelines.values():
        assert set(one.waits_for) <= made, one.id
        made |= set(one.outputs)
    assert set(pipelines["semantic_index"].also_on) <= made


def test_each_limit_is_the_budget_of_its_asset_and_so_is_the_alert() -> None:
    found = pipelines_with('assets.generator.budget="7m"')
    assert {step.limit_s for step in found["generator"].steps} == {420.0}
    assert found["generator"].deadline_s == 420.0
    assert found["semantic_index"].deadline_s == 3600.0 + OTHER_LIMIT_S
    assert {step.limit_s for step in found["release"].steps} == {OTHER_LIMIT_S}


def test_an_edge_taken_out_of_the_plan_leaves_the_chain() -> None:
    before = {name: one.waits_for for name, one in pipelines_with().items()}
    assert before["lists"] == ("generator",)
    assert before["release"] == ("cohort_lists",)
    after = pipelines_with('assets.cohort_lists.inputs=["semantic_index"]')
    assert after["lists"].waits_for == ("semantic_index",)
    assert set(after["release"].waits_for) == {"generator", "cohort_lists"}


def test_the_data_task_brings_the_sources_that_are_read() -> None:
    assert pipelines_with()["semantic_index"].steps[0].outputs == ("catalogue", "events", "profiles")
    no_profiles = pipelines_with(
        'assets.generator.inputs=["semantic_index"]', 'assets.cohort_lists.inputs=["semantic_index"]'
    )
    assert no_profiles["semantic_index"].steps[0].outputs == ("catalogue", "events")


def test_an_asset_made_from_the_data_alone_waits_for_the_data() -> None:
    found = pipelines_with('assets.cohort_lists.inputs=["profiles"]')
    assert found["lists"].waits_for == ("profiles",)
    assert [step.id for one in found.values() for step in one.steps].count("data") == 2  # one is the backfill's


def test_only_the_first_has_the_plans_times() -> None:
    offline = list(STEPS_OF_ASSET)
    found = pipelines_with(*(f'assets.{name}.schedule="30 4 * * 1"' for name in offline))
    assert {name: one.cron for name, one in found.items() if one.cron} == {"semantic_index": "30 4 * * 1"}


def test_the_watch_is_as_frequent_as_the_fastest_ageing_asset() -> None:
    assert pipelines_with()["quality_watch"].every_s == 3600.0
    assert pipelines_with('assets.candidates.fresh_for="30m"')["quality_watch"].every_s == 1800.0
    assert pipelines_with('assets.candidates.fresh_for="1s"')["quality_watch"].every_s == 300.0


def test_different_schedules_are_refused_with_their_fields() -> None:
    with pytest.raises(PlanError, match=r"assets\.generator\.schedule.*one schedule.*0 5 \* \* \*"):
        pipelines_with('assets.generator.schedule="0 5 * * *"')


def test_an_asset_without_a_schedule_follows_the_others(tmp_path: Path) -> None:
    lines = PLAN.read_text().splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if line.startswith("schedule")]
    path = tmp_path / "plan.toml"
    path.write_text("".join(line for number, line in enumerate(lines) if number not in at[1:]))
    assert derive_pipelines(load_plan(path))[0].cron == "0 3 * * *"
    path.write_text("".join(line for number, line in enumerate(lines) if number not in at))
    assert derive_pipelines(load_plan(path))[0].cron is None


def test_an_offline_asset_without_stages_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    extra = '\n[assets.images]\ntier="offline"\ninputs=["catalogue"]\nfresh_for="1d"\nusable_for="2d"\nbudget="1m"\n'
    path.write_text(PLAN.read_text() + extra + 'fallback="none"\n')
    with pytest.raises(PlanError, match=r"assets\.images: no stage"):
        derive_pipelines(load_plan(path))


@given(st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=7))
def test_edges_keep_who_waits_for_whom_and_say_nothing_twice(numbers: list[set[int]]) -> None:
    offline = {
        f"a{number}": asset(*(f"a{i}" for i in sorted(inputs) if i < number)) for number, inputs in enumerate(numbers)
    }
    kept = edges(offline)
    full = {name: list(asset.inputs) for name, asset in offline.items()} | {RELEASE: list(offline)}
    waits = reachable({name: list(before) for name, before in kept.items()})
    assert waits == reachable(full)
    for name, before in kept.items():
        for one in before:
            assert not any(one in waits.get(other, set()) for other in before), (name, one)


def reachable(graph: dict[str, list[str]]) -> dict[str, set[str]]:
    """Everything that each node waits for, step by step until nothing changes."""
    found = {name: set(before) for name, before in graph.items()}
    while True:
        more = {name: set.union(s, *(found.get(b, set()) for b in s)) for name, s in found.items()}
        if more == found:
            return found
        found = more
