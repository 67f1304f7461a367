"""The DAGs as Airflow sees them: they load light and alone, survive serialisation, and follow the plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.timetables.simple import AssetTriggeredTimetable

from dags.airflow_home import DAGS_FOLDER
from dags.factory import make_dags
from dags.pipelines import derive_pipelines
from dags.verb_operator import VerbOperator
from schemas.plan import load_plan

CHECKOUT = DAGS_FOLDER.parent
PLAN = CHECKOUT / "plan.toml"
FORBIDDEN = ["torch", "apache_beam", "pyflink", "numpy", "polars", "onnxruntime", "redis", "kafka"]


@pytest.fixture
def dags() -> dict[str, DAG]:
    return make_dags(load_plan(PLAN))


def serialised(dags: dict[str, DAG]) -> str:
    return json.dumps({name: DagSerialization.to_dict(dag) for name, dag in dags.items()}, sort_keys=True)


def test_the_folder_loads_without_errors_and_holds_the_plans_dags() -> None:
    bag = DagBag(DAGS_FOLDER)
    assert bag.import_errors == {}
    assert sorted(bag.dags) == sorted(one.id for one in derive_pipelines(load_plan(PLAN)))
    assert [Path(stat.file).name for stat in bag.dagbag_stats] == ["from_plan.py"]


def test_a_plan_that_makes_no_chain_is_an_import_error_with_the_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = PLAN.read_text().replace('schedule = "0 3 * * *"', 'schedule = "0 9 * * *"', 1)
    (tmp_path / "plan.toml").write_text(broken)
    monkeypatch.setenv("BEFOREHAND_PLAN", str(tmp_path / "plan.toml"))
    (problem,) = DagBag(DAGS_FOLDER).import_errors.values()
    assert "need one schedule" in problem
    assert "or leave it out of all but one" in problem


def test_a_default_that_does_not_fit_its_pattern_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEFOREHAND_DAG_PARAMS", '{"data": "--force"}')
    (problem,) = DagBag(DAGS_FOLDER).import_errors.values()
    assert "--force" in problem


def test_the_tasks_are_the_steps_of_the_pipelines(dags: dict[str, DAG]) -> None:
    for one in derive_pipelines(load_plan(PLAN)):
        dag = dags[one.id]
        extra = {"choose"} if one.by_day else set()
        assert set(dag.task_ids) == {step.id for step in one.steps} | extra
        for step in one.steps:
            assert dag.task_dict[step.id].upstream_task_ids - extra == set(step.after), step.id
            assert dag.task_dict[step.id].execution_timeout == timedelta(seconds=step.limit_s)
            assert dag.task_dict[step.id].retries == step.retries


def test_limits_are_the_budgets_of_the_plan() -> None:
    dag = make_dags(load_plan(PLAN, ['assets.generator.budget="7m"']))["generator"]
    assert dag.task_dict["train"].execution_timeout == timedelta(minutes=7)


def test_a_late_run_is_told_by_the_plans_budget(dags: dict[str, DAG]) -> None:
    for one in derive_pipelines(load_plan(PLAN)):
        (alert,) = alerts_of(dags[one.id])
        assert alert.interval == timedelta(seconds=one.deadline_s)
        assert alert.callback.path == "dags.alerts.late"
        assert alert.callback.kwargs == {"dag": one.id, "deadline_s": one.deadline_s}


def alerts_of(dag: DAG) -> list[Any]:
    deadline = dag.deadline
    return deadline if isinstance(deadline, list) else [deadline]


def test_groups_show_what_belongs_together(dags: dict[str, DAG]) -> None:
    shown = {name: set(group.children) for name, group in dags["promote"].task_group_dict.items() if name}
    assert shown == {
        "check": {"verify", "gate"},
        "try": {"canary", "watch_canary"},
        "serve": {"promote", "watch"},
    }
    assert set(dags["backfill"].task_group_dict["day"].children) == set(dags["backfill"].task_ids) - {"choose"}


def test_assets_show_the_lineage(dags: dict[str, DAG]) -> None:
    made = {asset.name: task.task_id for dag in dags.values() for task in dag.tasks for asset in task.outlets}
    assert made == {
        "catalogue": "data",
        "events": "data",
        "profiles": "data",
        "semantic_index": "index",
        "generator": "export",
        "cohort_lists": "lists",
        "release": "publish",
        "edge_bundle": "bundle",
        "current_release": "rollout",
        "drift": "drift",
    }
    train = dags["generator"].task_dict["train"]
    assert [asset.name for asset in train.inlets] == ["semantic_index", "events", "profiles"]


def test_a_dag_starts_when_what_it_waits_for_is_new(dags: dict[str, DAG]) -> None:
    found = {
        name: [a.name for _, a in dag.timetable.asset_condition.iter_assets()]
        for name, dag in read(dags).items()
        if isinstance(dag.timetable, AssetTriggeredTimetable)
    }
    assert found == {
        "semantic_index": ["drift"],
        "generator": ["semantic_index"],
        "lists": ["generator"],
        "release": ["cohort_lists"],
        "edge_bundle": ["release"],
        "promote": ["edge_bundle"],
    }


def read(dags: dict[str, DAG]) -> dict[str, Any]:
    """As the scheduler reads them from the database."""
    return {name: DagSerialization.from_dict(DagSerialization.to_dict(dag)) for name, dag in dags.items()}


def test_one_run_at_a_time_and_nothing_caught_up(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        assert dag.catchup is False
        assert dag.max_active_runs == 1


@pytest.mark.parametrize("begin", ["2026-03-20T00:00:00+00:00", "2026-10-20T00:00:00+00:00"])
def test_both_changes_of_the_clock_leave_no_gap_and_no_overlap(dags: dict[str, DAG], begin: str) -> None:
    """Europe changes on 29 March and 25 October 2026; the server's own time zone does not matter either."""
    times = runs(read(dags)["semantic_index"].timetable.timetable, pendulum.parse(begin), 14)
    assert {(later - earlier).total_seconds() for earlier, later in pairwise(times)} == {86_400.0}
    assert {(time.hour, time.utcoffset()) for time in times} == {(3, timedelta(0))}


def runs(timetable: Any, begin: Any, count: int) -> list[Any]:
    """The next ``count`` times, each asked for after the one before."""
    found, last = [], None
    restriction = TimeRestriction(earliest=begin, latest=None, catchup=True)
    for _ in range(count):
        info = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        found.append(info.run_after)
        last = info.data_interval
    return found


def test_after_thirty_days_off_only_the_newest_day_is_built(dags: dict[str, DAG]) -> None:
    timetable = read(dags)["semantic_index"].timetable.timetable
    now = pendulum.now("UTC")
    last = DataInterval.exact(now.subtract(days=30).replace(hour=3, minute=0, second=0, microsecond=0))
    restriction = TimeRestriction(earliest=pendulum.datetime(2025, 1, 1), latest=None, catchup=False)
    info = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
    assert now.subtract(days=1) <= info.run_after <= now.add(days=1)


def test_the_pool_is_the_named_one(monkeypatch: pytest.MonkeyPatch, dags: dict[str, DAG]) -> None:
    assert {task.pool for dag in dags.values() for task in dag.tasks} == {"default_pool"}
    monkeypatch.setenv("BEFOREHAND_POOL", "builds")
    built = make_dags(load_plan(PLAN))["generator"]
    assert {task.pool for task in built.tasks} == {"builds"}


def test_they_survive_serialisation(dags: dict[str, DAG]) -> None:
    for name, back in read(dags).items():
        assert back.task_ids == dags[name].task_ids
        assert back.doc_md == dags[name].doc_md
        assert back.params.dump() == dags[name].params.dump()


def test_the_same_plan_gives_the_same_dags_and_another_plan_others() -> None:
    same = serialised(make_dags(load_plan(PLAN)))
    assert serialised(make_dags(load_plan(PLAN))) == same
    assert serialised(make_dags(load_plan(PLAN, ["model.epochs=9"]))) == same
    for change in ('assets.generator.budget="7m"', 'assets.cohort_lists.inputs=["semantic_index"]'):
        assert serialised(make_dags(load_plan(PLAN, [change]))) != same


def test_every_task_says_what_it_does_what_it_may_cost_and_how_to_repeat_it(dags: dict[str, DAG]) -> None:
    for dag in dags.values():
        for task in dag.tasks:
            assert task.doc_md is not None
            if isinstance(task, VerbOperator):
                assert "**By hand** `./beforehand " in task.doc_md
                assert "**Limit**" in task.doc_md
    assert "| train | semantic_index, events, profiles | – | 2 h | 1 |" in str(dags["generator"].doc_md)
    assert "**Fresh for** 8 d, usable for 60 d." in str(dags["generator"].doc_md)
    assert "at 0 3 * * * UTC, when there is drift" in str(dags["semantic_index"].doc_md)


def test_a_form_with_a_file_to_be_named_still_has_a_command() -> None:
    files = make_dags(load_plan(PLAN), {"source": "files", "data": "shop"})["semantic_index"]
    assert "`./beforehand data --name shop --catalogue CATALOGUE --events EVENTS`" in str(
        files.task_dict["data"].doc_md
    )


def test_an_unknown_default_is_refused() -> None:
    with pytest.raises(Exception, match="no such parameter") as refusal:
        make_dags(load_plan(PLAN), {"dta": "shop"})
    assert not isinstance(refusal.value, AirflowException)


def test_parsing_imports_nothing_heavy_and_needs_no_path(tmp_path: Path) -> None:
    """In a process of its own, started elsewhere, as Airflow's processor is."""
    code = (
        "import runpy, sys; found = runpy.run_path(sys.argv[1]); "
        "print(found['promote'].dag_id, [m for m in sys.argv[2:] if m in sys.modules])"
    )
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "BEFOREHAND_ROOT")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(DAGS_FOLDER / "from_plan.py"), *FORBIDDEN],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "promote []", done.stderr


def test_the_pure_part_needs_no_airflow() -> None:
    code = "import sys, dags.__main__, dags.docs; print([m for m in sys.modules if m.startswith('airflow')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
