"""Run DAGs once, in this process, in a throw-away Airflow (``dags.airflow_home``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError
from airflow.utils.db import initdb
from airflow.utils.state import DagRunState

from dags.airflow_home import DAGS_FOLDER
from dags.command import news
from dags.pipelines import chain_of, derive_pipelines
from schemas.errors import BeforehandError
from schemas.plan import load_plan


class Trial(msgspec.Struct, frozen=True):
    """How one DAG ended."""

    state: str
    tasks: dict[str, str]  # state by task, in an order in which they run; "train[2]" of a repeated one


def run_trial(params: dict[str, Any], names: Sequence[str] = ()) -> dict[str, Trial]:
    """Make the database and run every task of the DAGs ``names`` (by default: from the data to the current release).

    Each gets what is in ``params`` of its form, and what the one before it would have told it by an asset's event.
    The first that fails is the last that runs.

    Raises:
        BeforehandError: the DAG file does not load, there is no such DAG, or a parameter does not fit its pattern.
    """
    dags = load_dags()
    chosen = names or [one.id for one in chain_of(derive_pipelines(load_plan()))]
    for name in chosen:
        if name not in dags:
            raise BeforehandError("no such DAG", where="dags test", value=name, mend=f"There are: {', '.join(dags)}.")
        check_params(dags[name], params)
    initdb()
    told, trials = dict(params), dict[str, Trial]()
    for name in chosen:
        trials[name], more = _run(dags[name], told)
        told |= more
        if trials[name].state != DagRunState.SUCCESS:
            break
    return trials


def _run(dag: DAG, told: dict[str, Any]) -> tuple[Trial, dict[str, Any]]:
    conf = {name: value for name, value in told.items() if name in dag.params}
    dag.deadline = None  # nobody waits for a trial, and Airflow 3.3.2 fails at the end of one that has a deadline
    run = dag.test(run_conf=conf)
    found = run.get_task_instances()
    order = [task.task_id for task in dag.topological_sort()]
    found.sort(key=lambda one: (order.index(one.task_id), one.map_index))
    states = {_name(one.task_id, one.map_index): str(one.state or "none") for one in found}
    told_next = [news(task, {}, _said(run, task)) for task in order]
    return Trial(str(run.state), states), {name: value for more in told_next for name, value in more.items()}


def _said(run: Any, task: str) -> dict[str, Any]:
    """What a task returned; empty when it returned no object (or one for each day)."""
    instance = run.get_task_instance(task)
    result = instance.xcom_pull(task_ids=task) if instance is not None else None
    return result if isinstance(result, dict) else {}


def _name(task: str, place: int) -> str:
    return task if place < 0 else f"{task}[{place}]"


def load_dags() -> dict[str, DAG]:
    """The DAGs as Airflow's own loader sees them. Raises BeforehandError with the loader's words."""
    bag = DagBag(DAGS_FOLDER)
    for file, problem in bag.import_errors.items():
        raise BeforehandError(f"the DAGs do not load: {problem.strip()}", where=file)
    return dict(bag.dags)


def check_params(dag: DAG, params: dict[str, Any]) -> None:
    """Airflow checks a trial's parameters only when the first task runs: this is earlier."""
    for name, value in params.items():
        if name not in dag.params:
            continue
        try:
            dag.params.get_param(name).resolve(value)
        except ParamValidationError as error:
            problem = str(error).splitlines()[0]
            raise BeforehandError(problem, where=f"--{name}", mend="See `./beforehand dags test --help`.") from None
