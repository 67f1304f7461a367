"""From the plan to Airflow's DAGs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import (
    DAG,
    Asset,
    AssetAny,
    AssetOrTimeSchedule,
    CronTriggerTimetable,
    Param,
    TaskGroup,
    TriggerRule,
    task_group,
)
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.definitions.param import ParamsDict

from dags.days_operator import CHOOSE, DaysOperator
from dags.docs import ABOUT, pipeline_doc, step_doc
from dags.form import Field, form
from dags.pipelines import Pipeline, derive_pipelines
from dags.steps import Step
from dags.verb_operator import VerbOperator
from schemas.plan import Plan

RETRY_DELAY = timedelta(minutes=1)
BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)
POOL_VARIABLE = "BEFOREHAND_POOL"
"""Names the pool of the tasks. It must exist (``airflow pools set``): Airflow never starts a task of an unknown one."""
LATE = "dags.alerts.late"


def make_dags(plan: Plan, defaults: Mapping[str, Any] | None = None) -> dict[str, DAG]:
    """All DAGs of ``plan``, by id.

    Args:
        plan: a checked plan.
        defaults: parameters of a run that names none, by the names of ``dags.form.FORM``.

    Raises:
        PlanError: the plan's offline assets can't make a chain, or ``defaults`` names an unknown parameter.
    """
    return {one.id: make_dag(one, form(defaults or {}, one.fields)) for one in derive_pipelines(plan)}


def make_dag(pipeline: Pipeline, fields: Mapping[str, Field]) -> DAG:
    """The DAG of one pipeline, with the form ``fields``."""
    params = {name: field.default for name, field in fields.items()}
    with DAG(
        pipeline.id,
        description=pipeline.about,
        doc_md=pipeline_doc(pipeline),
        schedule=_schedule(pipeline),
        start_date=BEGINNING,
        catchup=False,
        max_active_runs=1,
        params=ParamsDict({name: Param(f.default, description=f.about, **f.schema) for name, f in fields.items()}),
        deadline=DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=timedelta(seconds=pipeline.deadline_s),
            callback=AsyncCallback(LATE, kwargs={"dag": pipeline.id, "deadline_s": pipeline.deadline_s}),
        ),
        tags=["beforehand", *([pipeline.asset.tier] if pipeline.asset else [])],
    ) as dag:
        if pipeline.by_day:
            _add_days(pipeline, params)
        else:
            _add_tasks(pipeline, params)
    return dag


def _schedule(pipeline: Pipeline) -> Any:
    """Times are UTC: a change to or from summer time moves nothing."""
    if pipeline.cron is not None:
        any_of = AssetAny(*(asset(name) for name in pipeline.also_on))
        return AssetOrTimeSchedule(timetable=CronTriggerTimetable(pipeline.cron, timezone="UTC"), assets=any_of)
    if pipeline.every_s is not None:
        return timedelta(seconds=pipeline.every_s)
    return [asset(name) for name in (*pipeline.waits_for, *pipeline.also_on)] or None


def _add_tasks(pipeline: Pipeline, params: Mapping[str, Any]) -> None:
    """One task per step, in the DAG that is open; steps of one group can be folded in Airflow's picture."""
    groups: dict[str, TaskGroup] = {}
    tasks: dict[str, VerbOperator] = {}
    for step in pipeline.steps:
        group = None
        if step.group:
            group = groups.get(step.group) or TaskGroup(step.group, prefix_group_id=False)
            groups[step.group] = group
        tasks[step.id] = VerbOperator(task_group=group, **_settings(step, params))
        tasks[step.id].set_upstream([tasks[earlier] for earlier in step.after])


def _add_days(pipeline: Pipeline, params: Mapping[str, Any]) -> None:
    """The steps once for each chosen day: a day that fails stops no other."""

    @task_group(group_id="day", prefix_group_id=False)
    def one_day(day: str) -> None:
        before: VerbOperator | None = None
        for step in pipeline.steps:
            task = VerbOperator(day=day, max_active_tis_per_dagrun=1, **_settings(step, params))
            if before is not None:
                task.set_upstream(before)
            before = task

    one_day.expand(day=DaysOperator(task_id=CHOOSE, doc_md=ABOUT[CHOOSE]).output)


def _settings(step: Step, params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "task_id": step.id,
        "step": step.id,
        "skip_unless": step.skip_unless,
        "doc_md": step_doc(step, params),
        "execution_timeout": timedelta(seconds=step.limit_s),
        "retries": step.retries,
        "retry_delay": RETRY_DELAY,
        "pool": os.environ.get(POOL_VARIABLE) or "default_pool",
        "trigger_rule": TriggerRule.ONE_FAILED if step.when_failed else TriggerRule.ALL_SUCCESS,
        "inlets": [asset(name) for name in step.inputs],
        "outlets": [asset(name) for name in step.outputs],
    }


def asset(name: str) -> Asset:
    """Airflow's asset for an asset or a source of the plan. Other DAGs may be scheduled on it by this name."""
    return Asset(name=name, uri=f"beforehand://plan/{name}", group="beforehand")
