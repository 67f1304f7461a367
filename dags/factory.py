"""From the plan to the Airflow DAG."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, TaskGroup
from airflow.sdk.definitions.param import ParamsDict

from dags.chain import DAG_ID, Chain, Group, derive_chain
from dags.docs import chain_doc, group_doc, stage_doc
from dags.form import Field, form
from dags.stage_operator import StageOperator
from schemas.plan import Plan

RETRIES = 1
RETRY_DELAY = timedelta(minutes=1)
BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)
POOL_VARIABLE = "BEFOREHAND_POOL"
"""Names the pool of the tasks. It must exist (``airflow pools set``): Airflow never starts a task of an unknown one."""


def make_dag(plan: Plan, defaults: Mapping[str, Any] | None = None) -> DAG:
    """The DAG that builds and promotes a release as ``plan`` says.

    Args:
        plan: a checked plan.
        defaults: parameters of a run that names none, by the names of ``dags.form.FORM``.

    Raises:
        PlanError: the plan's offline assets can't make a chain, or ``defaults`` names an unknown parameter.
    """
    chain = derive_chain(plan)
    fields = form(defaults or {})
    with DAG(
        DAG_ID,
        description="Offline assets to a promoted release",
        doc_md=chain_doc(chain),
        schedule=chain.schedule,
        start_date=BEGINNING,
        catchup=False,
        max_active_runs=1,
        params=ParamsDict({name: Param(f.default, description=f.about, **f.schema) for name, f in fields.items()}),
        tags=["beforehand", "offline"],
    ) as dag:
        _add_tasks(chain, fields)
    return dag


def _add_tasks(chain: Chain, fields: Mapping[str, Field]) -> None:
    """One task per stage, in the DAG that is open."""
    params = {name: field.default for name, field in fields.items()}
    tasks = {task.task_id: task for group in chain.groups for task in _group_tasks(group, params)}
    for stage, before in chain.upstream().items():
        tasks[stage].set_upstream([tasks[earlier] for earlier in before])


def _group_tasks(group: Group, params: Mapping[str, Any]) -> list[StageOperator]:
    """A single task stands for itself; several make a group that Airflow can fold."""
    if group.stages == (group.name,):
        return [_task(group, group.name, params)]
    with TaskGroup(group.name, tooltip=group_doc(group), prefix_group_id=False):
        return [_task(group, stage, params) for stage in group.stages]


def _task(group: Group, stage: str, params: Mapping[str, Any]) -> StageOperator:
    """The first task of a group reads its inputs, the last one makes its outputs."""
    return StageOperator(
        task_id=stage,
        stage=stage,
        doc_md=stage_doc(stage, group, params),
        execution_timeout=timedelta(seconds=group.limit_s),
        retries=RETRIES,
        retry_delay=RETRY_DELAY,
        pool=os.environ.get(POOL_VARIABLE) or "default_pool",
        inlets=[asset(name) for name in group.inputs] if stage == group.stages[0] else [],
        outlets=[asset(name) for name in group.outputs] if stage == group.stages[-1] else [],
    )


def asset(name: str) -> Asset:
    """Airflow's asset for an asset or a source of the plan. Other DAGs may be scheduled on it by this name."""
    return Asset(name=name, uri=f"beforehand://plan/{name}", group="beforehand")
