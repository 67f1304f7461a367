"""The chain follows the plan: order, limits, schedule; and a plan that makes no chain is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dags.chain import DATA, OTHER_LIMIT_S, RELEASE, STAGES_OF_ASSET, Chain, derive_chain, edges
from schemas.errors import PlanError
from schemas.names import Tier
from schemas.plan import Asset, load_plan
from schemas.plan_types import Duration

PLAN = Path(__file__).resolve().parents[2] / "plan.toml"


def chain_with(*overrides: str) -> Chain:
    return derive_chain(load_plan(PLAN, overrides))


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


def test_the_stages_are_those_of_the_build_in_its_order() -> None:
    expected = ["data", "encode", "index", "train", "evaluate", "lists", "export", "publish", "promote"]
    assert chain_with().stages() == expected


def test_groups_follow_the_order_of_the_plan() -> None:
    plan = load_plan(PLAN)
    offline = [name for name in plan.order() if plan.assets[name].tier is Tier.OFFLINE]
    assert [group.name for group in derive_chain(plan).groups] == [DATA, *offline, RELEASE]


def test_each_limit_is_the_budget_of_its_asset() -> None:
    plan = load_plan(PLAN, ['assets.generator.budget="7m"'])
    limits = {group.name: group.limit_s for group in derive_chain(plan).groups}
    assert limits["generator"] == 420.0
    assert limits["cohort_lists"] == float(plan.assets["cohort_lists"].budget)
    assert limits[DATA] == limits[RELEASE] == OTHER_LIMIT_S


def test_an_edge_taken_out_of_the_plan_leaves_the_chain() -> None:
    before = {group.name: group.after for group in chain_with().groups}
    assert before == {
        "data": (),
        "semantic_index": ("data",),
        "generator": ("semantic_index",),
        "cohort_lists": ("generator",),
        "release": ("cohort_lists",),
    }
    after = {group.name: group.after for group in chain_with('assets.cohort_lists.inputs=["semantic_index"]').groups}
    assert after["cohort_lists"] == ("semantic_index",)
    assert set(after["release"]) == {"generator", "cohort_lists"}
    upstream = chain_with('assets.cohort_lists.inputs=["semantic_index"]').upstream()
    assert upstream["lists"] == upstream["train"] == ["index"]
    assert set(upstream["export"]) == {"evaluate", "lists"}


def test_the_data_task_brings_the_sources_that_are_read() -> None:
    assert chain_with().groups[0].outputs == ("catalogue", "events", "profiles")
    no_profiles = chain_with(
        'assets.generator.inputs=["semantic_index"]', 'assets.cohort_lists.inputs=["semantic_index"]'
    )
    assert no_profiles.groups[0].outputs == ("catalogue", "events")


def test_the_schedule_is_the_plans() -> None:
    offline = list(STAGES_OF_ASSET)
    assert chain_with().schedule == "0 3 * * *"
    assert chain_with(*(f'assets.{name}.schedule="30 4 * * 1"' for name in offline)).schedule == "30 4 * * 1"


def test_different_schedules_are_refused_with_their_fields() -> None:
    with pytest.raises(PlanError, match=r"assets\.generator\.schedule.*one schedule.*0 5 \* \* \*"):
        chain_with('assets.generator.schedule="0 5 * * *"')


def test_an_asset_without_a_schedule_follows_the_others(tmp_path: Path) -> None:
    lines = PLAN.read_text().splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if line.startswith("schedule")]
    path = tmp_path / "plan.toml"
    path.write_text("".join(line for number, line in enumerate(lines) if number not in at[1:]))
    assert derive_chain(load_plan(path)).schedule == "0 3 * * *"
    path.write_text("".join(line for number, line in enumerate(lines) if number not in at))
    assert derive_chain(load_plan(path)).schedule is None


def test_an_offline_asset_without_stages_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    extra = '\n[assets.images]\ntier="offline"\ninputs=["catalogue"]\nfresh_for="1d"\nusable_for="2d"\nbudget="1m"\n'
    path.write_text(PLAN.read_text() + extra + 'fallback="none"\n')
    with pytest.raises(PlanError, match=r"assets\.images: no stage"):
        derive_chain(load_plan(path))


@given(st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=7))
def test_edges_keep_who_waits_for_whom_and_say_nothing_twice(numbers: list[set[int]]) -> None:
    offline = {
        f"a{number}": asset(*(f"a{i}" for i in sorted(inputs) if i < number)) for number, inputs in enumerate(numbers)
    }
    kept = edges(offline)
    full = {name: list(asset.inputs) for name, asset in offline.items()} | {RELEASE: list(offline)}
    waits = reachable({name: list(before) for name, before in kept.items()})
    assert {name: found - {DATA} for name, found in waits.items()} == reachable(full)
    assert all(DATA in found for found in waits.values())
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
