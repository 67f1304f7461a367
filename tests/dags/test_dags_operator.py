"""One task: the exact command and environment, its result, and each way to fail."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from airflow.sdk.execution_time.timeout import timeout

from dags.verb_operator import VerbOperator


def run(stage: str, params: dict[str, Any]) -> dict[str, Any]:
    return VerbOperator(task_id=stage, step=stage).execute({"params": params})  # type: ignore[typeddict-item]


def test_the_command_runs_in_the_checkout_without_airflows_settings(
    fake_root: Any, params: dict[str, Any], tmp_path: Path
) -> None:
    assert run("encode", params | {"set": ["model.epochs=$(id)"]}) == {
        "stage": "encode",
        "release": "0" * 16,
        "id": "b" * 16,
    }
    (call,) = fake_root.calls()
    assert call["words"] == ["build", "encode", "--data", "journey", "--set", "model.epochs=$(id)", "--json"]
    assert call["cwd"] == str(fake_root.folder)
    assert call["environ"]["BEFOREHAND_STATE"] == str(tmp_path / "state")
    assert "AIRFLOW_HOME" in os.environ
    assert not [name for name in call["environ"] if "AIRFLOW" in name]


def test_what_the_stage_says_is_in_the_log(
    fake_root: Any, params: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    run("index", params)
    log = "".join(capfd.readouterr())
    assert "./beforehand build index --data journey" in log
    assert "progress of index" in log
    assert "a warning at the exit" in log


@pytest.mark.parametrize("code", [2, 3, 4])
def test_a_refused_input_fails_at_once_with_the_commands_own_words(
    fake_root: Any, params: dict[str, Any], code: int
) -> None:
    said = '{"error":"no such item","where":"events.csv:7 item_id","mend":"Take the row out."}'
    fake_root.answer("train", code=code, out=said)
    with pytest.raises(AirflowFailException) as failure:
        run("train", params)
    text = str(failure.value)
    assert "./beforehand build train --data journey" in text
    assert f"exit code {code}" in text
    assert "events.csv:7 item_id: no such item. Take the row out." in text


@pytest.mark.parametrize(("code", "out"), [(1, "Traceback"), (5, '{"error":"redis is down","where":"","mend":""}')])
def test_other_failures_may_be_tried_again(fake_root: Any, params: dict[str, Any], code: int, out: str) -> None:
    fake_root.answer("train", code=code, out=out)
    with pytest.raises(AirflowException, match=f"exit code {code}") as failure:
        run("train", params)
    assert not isinstance(failure.value, AirflowFailException)


def test_a_source_without_its_file_runs_nothing(fake_root: Any, params: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match="param catalogue"):
        run("data", params | {"source": "files"})
    assert fake_root.calls() == []


def event(at: int, **extra: Any) -> Any:
    return SimpleNamespace(timestamp=at, extra=extra)


def test_a_run_that_an_asset_started_takes_what_its_newest_event_brings(fake_root: Any, params: dict[str, Any]) -> None:
    events = {"a": [event(2, data="new", set=["model.seed=3"])], "b": [event(1, data="old")]}
    context: Any = {"params": params, "triggering_asset_events": events}
    VerbOperator(task_id="train", step="train").execute(context)
    assert fake_root.calls()[0]["words"] == ["build", "train", "--data", "new", "--set", "model.seed=3", "--json"]


def test_the_event_of_a_new_asset_brings_the_data_set_and_the_release(fake_root: Any, params: dict[str, Any]) -> None:
    outlet = Asset("release")
    events = {outlet: SimpleNamespace(extra={})}
    context: Any = {"params": params | {"data": "shop"}, "outlet_events": events}
    VerbOperator(task_id="publish", step="publish", outlets=[outlet]).execute(context)
    assert events[outlet].extra == {"data": "shop", "set": [], "force": False, "release": "0" * 16}


def test_nothing_new_is_no_event(fake_root: Any, params: dict[str, Any]) -> None:
    outlet = Asset("drift")
    events = {outlet: SimpleNamespace(extra={})}
    context: Any = {"params": params, "outlet_events": events}
    task = VerbOperator(task_id="drift", step="drift", skip_unless="drifted", outlets=[outlet])
    fake_root.answer("drift", out='{"drifted": false}')
    with pytest.raises(AirflowSkipException, match="not drifted"):
        task.execute(context)
    fake_root.answer("drift", out='{"drifted": true}')
    assert task.execute(context) == {"drifted": True}


def test_a_day_of_a_backfill_has_its_own_data_set_and_files(fake_root: Any, params: dict[str, Any]) -> None:
    files = {"source": "files", "catalogue": "/lake/items.csv", "events": "/lake/{day}/events.csv", "force": True}
    VerbOperator(task_id="data", step="data", day="20260301").execute({"params": params | files})  # type: ignore[typeddict-item]
    VerbOperator(task_id="train", step="train", day="20260301").execute({"params": params | files})  # type: ignore[typeddict-item]
    data, train = fake_root.calls()
    assert data["words"][:3] == ["data", "--name", "journey-20260301"]
    assert "/lake/20260301/events.csv" in data["words"]
    assert train["words"] == ["build", "train", "--data", "journey-20260301", "--json"]


def test_a_release_that_nobody_named_is_asked_for(fake_root: Any, params: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match=r"param release: which release\?.*release list"):
        run("verify", params)
    assert fake_root.calls() == []


def test_a_stage_past_its_limit_is_stopped(fake_root: Any, params: dict[str, Any]) -> None:
    fake_root.answer("train", sleep_s=60)
    ran_out = threading.Thread(target=lambda: (wait_for_call(fake_root), os.kill(os.getpid(), signal.SIGALRM)))
    with pytest.raises(AirflowTaskTimeout), timeout(600):
        ran_out.start()
        run("train", params)
    ran_out.join()
    assert not alive(fake_root.calls()[0]["pid"])


def test_a_stage_is_stopped_with_its_task(fake_root: Any, params: dict[str, Any]) -> None:
    fake_root.answer("train", sleep_s=60)
    task = VerbOperator(task_id="train", step="train")
    stopper = threading.Thread(target=lambda: (wait_for_call(fake_root, task), task.on_kill()))
    stopper.start()
    with pytest.raises(AirflowException, match="exit code -15"):
        task.execute({"params": params})  # type: ignore[typeddict-item]
    stopper.join()
    assert not alive(fake_root.calls()[0]["pid"])


def wait_for_call(fake_root: Any, task: VerbOperator | None = None) -> None:
    while not fake_root.calls() or (task and task._process is None):
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
