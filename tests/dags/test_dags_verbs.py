"""The verbs as a person types them, through the launcher where the room's own work is cheap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


def dags(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dags", "dags", *words],
        cwd=CHECKOUT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_list() -> None:
    found = {dag["id"]: dag for dag in json.loads(dags("list", "--json").stdout)["dags"]}
    assert found["semantic_index"] == {
        "id": "semantic_index",
        "starts": "at 0 3 * * * UTC, when there is drift",
        "num_tasks": 3,
    }
    assert found["backfill"]["starts"] == "only by hand"


def test_show_as_json_follows_the_plan() -> None:
    shown = json.loads(dags("show", "generator", "--json", "--set", 'assets.generator.budget="7m"').stdout)
    (dag,) = shown["dags"]
    assert dag["deadline_s"] == 420.0
    tasks = {task["id"]: task for task in dag["tasks"]}
    assert tasks["evaluate"] == {
        "id": "evaluate",
        "after": ["train"],
        "reads": [],
        "makes": [],
        "limit_s": 420.0,
        "retries": 1,
    }


def test_show_as_a_tree_names_tasks_limits_and_commands() -> None:
    text = " ".join(dags("show", COLUMNS="200").stderr.split())
    assert "generator when semantic_index is new · alert after 2 h" in text
    assert "./beforehand build train --data journey" in text
    assert "undo · only when watch_canary or watch failed" in text
    assert text.index("encode") < text.index("lists") < text.index("rollout")


def test_show_refuses_an_unknown_dag() -> None:
    done = dags("show", "precompute")
    assert done.returncode == 1
    assert "no such DAG (got 'precompute'). There are: semantic_index" in " ".join(done.stderr.split())


def test_show_takes_the_defaults_of_scheduled_runs() -> None:
    done = dags("show", COLUMNS="200", BEFOREHAND_DAG_PARAMS='{"data": "shop", "source": "files"}')
    assert "./beforehand data --name shop --catalogue CATALOGUE --events EVENTS" in done.stderr


def test_defaults_that_are_no_json_are_refused_by_name() -> None:
    done = dags("show", BEFOREHAND_DAG_PARAMS="shop")
    assert done.returncode == 2
    assert "BEFOREHAND_DAG_PARAMS: not a JSON object" in done.stderr
    assert "Traceback" not in done.stderr


def test_show_refuses_an_unknown_setting() -> None:
    done = dags("show", "--set", "model.epoch=1", "--json")
    assert done.returncode == 2
    assert "model.epoch" in json.loads(done.stdout)["where"]


@pytest.mark.parametrize("words", [("list",), ("show",), ("test",)])
def test_help_has_an_example(words: tuple[str, ...]) -> None:
    done = dags(*words, "--help")
    assert done.returncode == 0
    assert f"./beforehand dags {words[0]}" in done.stdout


def test_a_refused_trial_leaves_no_airflow_behind(fake_root: Any, tmp_path: Path) -> None:
    done = dags("test", "--data", "../x", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["where"] == "--data"
    assert list((tmp_path / "state" / "run" / "airflow").iterdir()) == []
    assert fake_root.calls() == []


@pytest.mark.slow
def test_a_failed_trial_says_which_task_and_why(fake_root: Any, tmp_path: Path) -> None:
    fake_root.answer("index", code=3, out='{"error":"no items","where":"catalogue.parquet","mend":"Add some."}')
    done = dags("test", "--data", "tiny", "--json")
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert result["state"] == "failed"
    assert result["dags"]["semantic_index"]["tasks"] == {"data": "success", "encode": "success", "index": "failed"}
    assert list(result["dags"]) == ["semantic_index"]
    assert "catalogue.parquet: no items. Add some." in done.stderr
    assert list((tmp_path / "state" / "run" / "airflow").iterdir()) == []
