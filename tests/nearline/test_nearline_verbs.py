"""The verbs as a person meets them: help, and errors that name the mend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from nearline.metrics import Tally, percentiles

ROOT = Path(__file__).resolve().parent.parent.parent


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")} | more
    command = [sys.executable, "-m", "nearline", *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("verb", ["worker", "replay", "forget"])
def test_help_ends_with_an_example(verb: str) -> None:
    done = run(verb, "--help")
    assert done.returncode == 0
    assert f"./beforehand {verb}" in done.stdout


def test_a_missing_address_names_the_variable(tmp_path: Path) -> None:
    done = run("worker", "--json", BEFOREHAND_STATE=str(tmp_path))
    assert done.returncode == 5
    answer = json.loads(done.stdout)
    assert answer["where"] == "BEFOREHAND_KAFKA"
    assert "up" in answer["mend"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = run("replay", str(tmp_path / "none.jsonl"), "--json")
    assert done.returncode == 3
    assert "none.jsonl" in json.loads(done.stdout)["where"]


def test_nothing_to_do_is_an_error_with_its_mend() -> None:
    assert json.loads(run("replay", "--json").stdout)["where"] == "FILE"
    nobody = json.loads(run("forget", "--json", BEFOREHAND_KAFKA="127.0.0.1:9").stdout)
    assert (nobody["where"], "--list" in nobody["mend"]) == ("USER", True)
    bad = run("forget", "a\nb", "--json", BEFOREHAND_KAFKA="127.0.0.1:9")
    assert bad.returncode == 3


@pytest.mark.parametrize("words", [["--rate", "0"], ["--rate", "fast"], ["--measure", "-1"]])
def test_a_bad_number_is_refused(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("")
    assert run("replay", str(file), *words).returncode == 2


def test_the_metrics_are_served_on_the_loopback_address() -> None:
    tally = Tally()
    tally.add(records=3, states=2)
    tally.visible(250.0)
    server, thread = tally.serve(0)
    assert server.server_address[0] == "127.0.0.1"
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
        text = answer.read().decode()
    server.shutdown()
    thread.join()
    assert "beforehand_worker_records_total 3.0" in text
    assert 'beforehand_worker_event_to_visible_seconds_bucket{le="0.3"} 1.0' in text


def test_percentiles_of_nothing_are_nothing() -> None:
    assert percentiles([]) == {"p50": None, "p99": None}
    assert percentiles([1.0, 2.0, 3.0])["p50"] == 2.0
