"""The DAG as Airflow sees it: it loads light and alone, survives serialisation, and follows the plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from airflow.serialization.serialized_objects import DagSerialization

from dags.airflow_home import DAGS_FOLDER
from dags.chain import DAG_ID, derive_chain
from dags.factory import make_dag
from dags.stage_operator import StageOperator
from schemas.plan import load_plan

CHECKOUT = DAGS_FOLDER.parent
PLAN = CHECKOUT / "plan.toml"
FORBIDDEN = ["torch", "apache_beam", "pyflink", "numpy", "polars", "onnxruntime", "redis", "kafka"]


@pytest.fixture
def dag() -> DAG:
    return make_dag(load_plan(PLAN))


def serialised(dag: DAG) -> str:
    return json.dumps(DagSerialization.to_dict(dag), sort_keys=True)


def test_the_folder_loads_without_errors_and_holds_this_one_dag() -> None:
    bag = DagBag(DAGS_FOLDER)
    assert bag.import_errors == {}
    assert list(bag.dags) == [DAG_ID]
    assert [Path(stat.file).name for stat in bag.dagbag_stats] == ["precompute.py"]


def test_a_plan_that_makes_no_chain_is_an_import_error_with_the_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = PLAN.read_text().replace('schedule = "0 3 * * *"', 'schedule = "0 9 * * *"', 1)
    (tmp_path / "plan.toml").write_text(broken)
    monkeypatch.setenv("BEFOREHAND_PLAN", str(tmp_path / "plan.toml"))
    (problem,) = DagBag(DAGS_FOLDER).import_errors.values()
    assert "need one schedule" in problem
    assert "Write the same one for each" in problem


def test_a_default_that_does_not_fit_its_pattern_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEFOREHAND_DAG_PARAMS", '{"data": "--force"}')
    (problem,) = DagBag(DAGS_FOLDER).import_errors.values()
    assert "--force" in problem


def test_the_tasks_are_the_stages_of_the_chain_in_its_order(dag: DAG) -> None:
    chain = derive_chain(load_plan(PLAN))
    assert [task.task_id for task in dag.topological_sort()] == chain.stages()
    for group in chain.groups:
        for earlier, later in zip(group.stages, group.stages[1:], strict=False):
            assert dag.task_dict[earlier].downstream_task_ids == {later}
    assert dag.task_dict["train"].upstream_task_ids == {"index"}
    assert dag.task_dict["export"].upstream_task_ids == {"lists"}


def test_limits_are_the_budgets_of_the_plan() -> None:
    plan = load_plan(PLAN, ['assets.generator.budget="7m"'])
    dag = make_dag(plan)
    for group in derive_chain(plan).groups:
        for stage in group.stages:
            assert dag.task_dict[stage].execution_timeout == timedelta(seconds=group.limit_s)
    assert dag.task_dict["train"].execution_timeout == timedelta(minutes=7)


def test_groups_show_the_assets(dag: DAG) -> None:
    shown = {name: set(group.children) for name, group in dag.task_group_dict.items() if name}
    assert shown == {
        "semantic_index": {"encode", "index"},
        "generator": {"train", "evaluate"},
        "cohort_lists": {"lists"},
        "release": {"export", "publish", "promote"},
    }


def test_assets_show_the_lineage(dag: DAG) -> None:
    made = {asset.name: task.task_id for task in dag.tasks for asset in task.outlets}
    assert made == {
        "catalogue": "data",
        "events": "data",
        "profiles": "data",
        "semantic_index": "index",
        "generator": "evaluate",
        "cohort_lists": "lists",
        "release": "promote",
    }
    assert [asset.name for asset in dag.task_dict["train"].inlets] == ["semantic_index", "events", "profiles"]


def test_one_run_at_a_time_and_nothing_caught_up(dag: DAG) -> None:
    assert dag.catchup is False
    assert dag.max_active_runs == 1
    scheduler = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert scheduler.timetable.summary == "0 3 * * *"
    assert {task.retries for task in dag.tasks} == {1}


def test_the_pool_is_the_named_one(monkeypatch: pytest.MonkeyPatch, dag: DAG) -> None:
    assert {task.pool for task in dag.tasks} == {"default_pool"}
    monkeypatch.setenv("BEFOREHAND_POOL", "builds")
    assert {task.pool for task in make_dag(load_plan(PLAN)).tasks} == {"builds"}


def test_it_survives_serialisation(dag: DAG) -> None:
    back = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert back.task_ids == dag.task_ids
    assert back.doc_md == dag.doc_md
    assert back.params.dump() == dag.params.dump()
    assert back.task_dict["train"].execution_timeout == dag.task_dict["train"].execution_timeout
    assert back.task_dict["export"].upstream_task_ids == {"lists"}


def test_the_same_plan_gives_the_same_dag_and_another_plan_another() -> None:
    same = serialised(make_dag(load_plan(PLAN)))
    assert serialised(make_dag(load_plan(PLAN))) == same
    assert serialised(make_dag(load_plan(PLAN, ["model.epochs=9"]))) == same
    for change in ('assets.generator.budget="7m"', 'assets.cohort_lists.inputs=["semantic_index"]'):
        assert serialised(make_dag(load_plan(PLAN, [change]))) != same


def test_every_task_says_what_it_does_what_it_may_cost_and_how_to_repeat_it(dag: DAG) -> None:
    for task in dag.tasks:
        assert isinstance(task, StageOperator)
        assert task.doc_md is not None
        words = "data --name" if task.task_id == "data" else f"build {task.task_id} --data"
        assert f"`./beforehand {words} journey" in task.doc_md
        assert "**Limit**" in task.doc_md
    assert "| generator | train → evaluate | semantic_index, events, profiles | 2 h | 8 d / 60 d |" in str(dag.doc_md)


def test_a_form_with_a_file_to_be_named_still_has_a_command(dag: DAG) -> None:
    files = make_dag(load_plan(PLAN), {"source": "files", "data": "shop"})
    assert "`./beforehand data --name shop --catalogue CATALOGUE --events EVENTS`" in str(
        files.task_dict["data"].doc_md
    )


def test_an_unknown_default_is_refused() -> None:
    with pytest.raises(Exception, match="no such parameter") as refusal:
        make_dag(load_plan(PLAN), {"dta": "shop"})
    assert not isinstance(refusal.value, AirflowException)


def test_parsing_imports_nothing_heavy_and_needs_no_path(tmp_path: Path) -> None:
    """In a process of its own, started elsewhere, as Airflow's processor is."""
    code = (
        "import runpy, sys; found = runpy.run_path(sys.argv[1]); "
        "print(found['dag'].dag_id, [m for m in sys.argv[2:] if m in sys.modules])"
    )
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "BEFOREHAND_ROOT")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(DAGS_FOLDER / "precompute.py"), *FORBIDDEN],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "precompute []", done.stderr


def test_the_pure_part_needs_no_airflow() -> None:
    code = "import sys, dags.__main__, dags.docs; print([m for m in sys.modules if m.startswith('airflow')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
