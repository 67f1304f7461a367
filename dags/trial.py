"""Run the DAG once, in this process, in a throw-away Airflow (``dags.airflow_home``)."""

from __future__ import annotations

from typing import Any

import msgspec
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError
from airflow.utils.db import initdb

from dags.airflow_home import DAGS_FOLDER
from dags.chain import DAG_ID
from schemas.errors import BeforehandError


class Trial(msgspec.Struct, frozen=True):
    """How it ended."""

    state: str
    tasks: dict[str, str]  # state by task, in the order of the chain


def run_trial(params: dict[str, Any]) -> Trial:
    """Make the database and run every task, with ``params`` instead of the DAG's defaults.

    Raises:
        BeforehandError: the DAG file does not load, or a parameter does not fit its pattern.
    """
    dag = load_dag()
    check_params(dag, params)
    initdb()
    run = dag.test(run_conf=params)
    states = {task.task_id: str(task.state or "none") for task in run.get_task_instances()}
    return Trial(str(run.state), {task.task_id: states[task.task_id] for task in dag.topological_sort()})


def load_dag() -> DAG:
    """The DAG as Airflow's own loader sees it. Raises BeforehandError with the loader's words."""
    bag = DagBag(DAGS_FOLDER)
    for file, problem in bag.import_errors.items():
        raise BeforehandError(f"the DAG does not load: {problem.strip()}", where=file)
    return bag.dags[DAG_ID]


def check_params(dag: DAG, params: dict[str, Any]) -> None:
    """Airflow checks a trial's parameters only when the first task runs: this is earlier."""
    for name, value in params.items():
        try:
            dag.params.get_param(name).resolve(value)
        except ParamValidationError as error:
            problem = str(error).splitlines()[0]
            raise BeforehandError(problem, where=f"--{name}", mend="See `./beforehand dags test --help`.") from None
