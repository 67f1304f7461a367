"""Whole runs of each DAG in a throw-away Airflow, against a launcher that only records."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dags.airflow_home import enter
from dags.command import arguments, for_day
from dags.trial import check_params, load_dags, run_trial
from schemas.errors import BeforehandError

RELEASE, BUNDLE = "0" * 16, "b" * 16
BUILD = ["data", "encode", "index", "train", "evaluate", "export", "lists", "publish"]
SERVE = ["verify", "gate", "canary", "watch_canary", "promote", "watch", "rollout"]


@pytest.mark.slow
def test_a_chain_calls_every_step_once_in_order_and_hands_the_release_on(
    fake_root: Any, params: dict[str, Any]
) -> None:
    chosen = params | {"data": "tiny", "set": ["model.epochs=1"]}
    trials = run_trial(chosen)
    assert {name: trial.state for name, trial in trials.items()} == dict.fromkeys(
        ("semantic_index", "generator", "lists", "release", "edge_bundle", "promote"), "success"
    )
    assert trials["promote"].tasks == dict.fromkeys(SERVE, "success") | {"undo": "skipped"}
    told = chosen | {"release": RELEASE, "bundle": BUNDLE}
    expected = [arguments(step, told) for step in (*BUILD, "bundle", *SERVE)]
    assert [call["words"] for call in fake_root.calls()] == expected


@pytest.mark.slow
def test_a_refused_stage_fails_the_run_and_nothing_after_it_runs(
    fake_root: Any, params: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    fake_root.answer("train", code=3, out='{"error":"a NaN vector","where":"item 7","mend":"Mend it."}')
    trials = run_trial(params)
    assert list(trials) == ["semantic_index", "generator"]
    assert trials["generator"].state == "failed"
    assert trials["generator"].tasks == {"train": "failed", "evaluate": "upstream_failed", "export": "upstream_failed"}
    assert [call["words"][1] for call in fake_root.calls()][1:] == ["encode", "index", "train"]
    assert "item 7: a NaN vector. Mend it." in "".join(capfd.readouterr())


def test_a_promotion_whose_watch_fails_is_undone_and_no_device_hears_of_it(
    fake_root: Any, params: dict[str, Any]
) -> None:
    watched = {"error": "late answers", "where": RELEASE, "mend": "See the runbook."}
    fake_root.answer("watch", code=4, out=str(watched).replace("'", '"'))
    trial = run_trial({"release": RELEASE, "bundle": BUNDLE}, ["promote"])["promote"]
    assert trial.state == "failed"
    assert (trial.tasks["watch_canary"], trial.tasks["promote"]) == ("failed", "upstream_failed")
    assert (trial.tasks["undo"], trial.tasks["rollout"]) == ("success", "upstream_failed")
    assert fake_root.calls()[-1]["words"] == arguments("undo", {"release": RELEASE})


@pytest.mark.slow
def test_the_quality_watch_runs_each_look_for_itself(fake_root: Any) -> None:
    fake_root.answer("parity", code=1, out='{"error":"the tiers differ","where":"u1","mend":""}')
    fake_root.answer("drift", out='{"drifted": false}')
    trial = run_trial({}, ["quality_watch"])["quality_watch"]
    assert trial.state == "failed"
    expected = {"freshness": "success", "parity": "up_for_retry", "dead_letters": "success", "drift": "skipped"}
    assert trial.tasks | {"parity": "up_for_retry"} == expected
    assert trial.tasks["parity"] in ("failed", "up_for_retry")


@pytest.mark.slow
def test_a_backfill_builds_the_newest_days_each_for_itself_and_promotes_none(
    fake_root: Any, params: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    chosen = {"begin": "2026-03-01T00:00:00Z", "end": "2026-03-05T00:00:00Z", "most": 2}
    trial = run_trial(chosen, ["backfill"])["backfill"]
    assert trial.state == "success"
    assert trial.tasks["publish[1]"] == "success"
    days = {day: [arguments(step, for_day(params, day)) for step in BUILD] for day in ("20260304", "20260303")}
    calls = [call["words"] for call in fake_root.calls()]
    for words in days.values():
        assert [call for call in calls if call in words] == words
    assert len(calls) == 2 * len(BUILD)
    # The scheduler takes mapped tasks by their index, the newest first; a trial takes them in any order.
    assert calls[0] in (words[0] for words in days.values())
    assert "left out: 2 older days (20260301 … 20260302)" in "".join(capfd.readouterr())


def test_a_parameter_that_does_not_fit_is_refused_before_anything_runs(fake_root: Any, params: dict[str, Any]) -> None:
    with pytest.raises(BeforehandError, match=r"--data.*'\.\./x' does not match"):
        check_params(load_dags()["generator"], params | {"data": "../x"})
    with pytest.raises(BeforehandError, match=r"no such DAG.*semantic_index"):
        run_trial(params, ["precompute"])
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


@pytest.mark.slow
def test_the_events_in_airflows_database_bring_what_the_next_dag_needs(fake_root: Any) -> None:
    run_trial({"data": "tiny"}, ["release"])
    with sqlite3.connect(Path(os.environ["AIRFLOW_HOME"]) / "airflow.db") as db:
        rows = db.execute(
            "select e.extra from asset_event e join asset a on a.id = e.asset_id where a.name = 'release'"
        )
        newest = rows.fetchall()[-1][0]
    assert f'"release": "{RELEASE}"' in newest
    assert '"data": "tiny"' in newest
