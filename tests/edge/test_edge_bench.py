"""`bench edge`: the rooms' measurements put together, and what is absent named."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from infra import bench_edge
from infra.bench_edge import Found, summary
from infra.bench_edge_text import as_text
from infra.errors import LauncherError

ROOT = Path(__file__).parent.parent.parent
KEYS = {
    "max_abs_difference",
    "encode_ms",
    "bundle_bytes",
    "cold_start_ms",
    "main_thread_ms",
    "sdk_gzip_bytes",
    "recall_gain",
}
RUNTIMES = {"python", "node", "chromium", "jvm"}


def line(runtime: str, **more: object) -> dict:
    usual = {"encode_ms": {"p50": 0.12345, "p99": 1.0}, "cold_start_ms": 100.0, "max_abs_difference": 1e-8}
    return {"runtime": runtime, "bundle": "b", **usual, **more}


@pytest.fixture
def found() -> Found:
    python = line("python", bundle_bytes=1_000, graph="int8", max_abs_difference=0.0)
    sizes = {"web": 13_000, "native": 8_000}
    node = line("node", sdk_gzip_bytes=sizes, max_abs_difference=3e-8)
    made = Found()
    made.collect("python", lambda: [python])
    made.collect("node, chromium", lambda: [node, {"runtime": "chromium", "absent": "no browser at /x"}])
    return made


def missing() -> list[dict]:
    raise LauncherError("needs Maven", "install it")


def test_every_figure_has_its_place_and_what_is_absent_its_reason(found: Found) -> None:
    found.collect("jvm", missing)
    result = summary(found)
    assert set(result) >= KEYS
    assert set(result["encode_ms"]) == set(result["cold_start_ms"]) == RUNTIMES
    assert result["encode_ms"]["python"]["p50"] == 0.123
    assert result["encode_ms"]["jvm"] is result["encode_ms"]["chromium"] is None
    assert result["max_abs_difference"] == 3e-8
    assert result["absent"] == {"chromium": "no browser at /x", "jvm": "needs Maven"}
    text = as_text(result)
    assert "chromium   absent: no browser at /x" in text
    assert "recall gain: absent" in text


def test_a_step_that_fails_names_all_that_it_would_have_measured() -> None:
    found = Found()
    found.collect("node, chromium", missing)
    assert found.absent == {"node": "needs Maven", "chromium": "needs Maven"}
    assert summary(found)["max_abs_difference"] is None
    assert "node       absent: needs Maven" in as_text(summary(found))


def test_the_gain_is_told_by_delay(found: Found) -> None:
    row = {"stale": 0.1, "prompted": 0.12, "gain": 0.02, "standard_error": 0.003, "missed_events": 1.5}
    few = {"cases": 40, "seen_all": 0.2, **row, "gain": 0.05}
    recall = {
        "seen_all": 0.13,
        "by_delay": {"10": {**row, "few_events": few}, "1": {**row, "few_events": {"cases": 0}}},
    }
    found.gain = {"cases": 1_200, "spacing_s": 5.0, "recall_gain": {"10": 0.02}, "recall_at_10": recall}
    result = summary(found)
    assert result["recall_gain"] == {"10": 0.02}
    assert as_text(result).count("+0.0200 ± 0.0030") == 2
    assert as_text(result).count("the 40 with few events") == 1
    assert "a line each 5 s" in as_text(result)


@pytest.mark.parametrize("runs", ["0", "-3", "many"])
def test_a_number_of_runs_that_cannot_be_is_refused(runs: str) -> None:
    with pytest.raises(SystemExit) as refused:
        bench_edge.main(["--runs", runs])
    assert refused.value.code == 2


@pytest.mark.slow
def test_the_verb_measures_whatever_is_on_this_machine() -> None:
    words = ["bench", "edge", "--invoices", "none.parquet", "--runs", "20", "--json"]
    ran = subprocess.run([ROOT / "beforehand", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert set(result) >= KEYS
    assert result["max_abs_difference"] <= 1e-5
    assert set(result["encode_ms"]) == RUNTIMES
    for name, encode in result["encode_ms"].items():
        assert encode is not None or result["absent"][name], name
    assert result["recall_gain"] is None
    assert "--invoices" in result["absent"]["recall_gain"]
