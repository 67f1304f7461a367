"""Whole runs of the DAG in a throw-away Airflow, against a launcher that only records."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dags.airflow_home import enter
from dags.command import arguments
from dags.trial import check_params, load_dag, run_trial
from schemas.errors import BeforehandError

STAGES = ["data", "encode", "index", "train", "evaluate", "lists", "export", "publish", "promote"]


def test_a_run_calls_every_stage_once_in_order_and_keeps_its_result(fake_root: Any, params: dict[str, Any]) -> None:
    chosen = params | {"data": "tiny", "set": ["model.epochs=1"]}
    trial = run_trial(chosen)
    assert trial.state == "success"
    assert trial.tasks == dict.fromkeys(STAGES, "success")
    assert [call["words"] for call in fake_root.calls()] == [arguments(stage, chosen) for stage in STAGES]
    assert xcoms() == {stage: f'{{"stage": "{stage}"}}' for stage in STAGES}


def test_a_refused_stage_fails_the_run_and_stops_the_chain(
    fake_root: Any, params: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    fake_root.answer("train", code=3, out='{"error":"a NaN vector","where":"item 7","mend":"Mend it."}')
    trial = run_trial(params)
    assert trial.state == "failed"
    after = STAGES[STAGES.index("train") + 1 :]
    expected = {"data": "success", "encode": "success", "index": "success", "train": "failed"}
    assert trial.tasks == expected | dict.fromkeys(after, "upstream_failed")
    assert [call["words"][1] for call in fake_root.calls()][1:] == ["encode", "index", "train"]
    assert "item 7: a NaN vector. Mend it." in "".join(capfd.readouterr())


def test_a_parameter_that_does_not_fit_is_refused_before_anything_runs(fake_root: Any, params: dict[str, Any]) -> None:
    with pytest.raises(BeforehandError, match=r"--data.*'\.\./x' does not match"):
        check_params(load_dag(), params | {"data": "../x"})
    assert fake_root.calls() == []


def test_another_airflows_settings_are_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its database, above all: a trial emits asset events."""
    monkeypatch.setattr("os.environ", dict(os.environ))
    os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = "postgresql://production"
    os.environ["AIRFLOW__CORE__EXECUTOR"] = "CeleryExecutor"
    enter(tmp_path)
    assert os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == f"sqlite:///{tmp_path}/airflow.db"
    assert os.environ["AIRFLOW_HOME"] == str(tmp_path)
    assert "AIRFLOW__CORE__EXECUTOR" not in os.environ


def xcoms() -> dict[str, str]:
    """The return values that the runs of this session left in Airflow's database, by task."""
    with sqlite3.connect(Path(os.environ["AIRFLOW_HOME"]) / "airflow.db") as db:
        rows = db.execute("select task_id, value from xcom where key = 'return_value' order by timestamp desc")
        found: dict[str, str] = {}
        for task, value in rows:
            found.setdefault(task, value)
        return found
