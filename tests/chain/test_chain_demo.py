"""The whole chain, through the command a newcomer types: real data, Kafka, Flink, Redis, HTTP."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("BEFOREHAND_SHARED", ROOT.parent / "shared"))
INVOICES = SHARED / "data" / "online-retail" / "invoices.parquet"

pytestmark = pytest.mark.slow


def demo(state: Path, *words: str) -> dict:
    done = subprocess.run(
        [ROOT / "beforehand", "demo", "--small", "--json", *words],
        env={**os.environ, "BEFOREHAND_STATE": str(state)},
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    assert done.returncode == 0
    return json.loads(done.stdout.splitlines()[-1])


def holds(result: dict, state: Path):
    """What must be true of every run, whatever the data."""
    assert result["recall_at_50"] > result["popularity_recall_at_50"]
    assert result["recall_at_50"] > 0.95 * result["knn_recall_at_50"]  # how far above is a benchmark's business
    rungs = result["rungs_with_state"]
    assert rungs["generate"] >= 0.95 * sum(rungs.values())  # a stall of the machine costs a request its rung
    assert result["unknown_items"] == 0
    assert result["errors"] == 0
    assert result["live_ms"] <= result["all_live_ms"] / 2
    assert result["freshness_p99_ms"] > 0
    assert result["release"]
    assert {"recall_at_50", "knn_recall_at_50", "latency_p99_ms", "live_ms", "rungs", "seconds"} <= set(result)
    page = (state / "report" / "demo.html").read_text()
    assert result["release"] in page
    assert "src=" not in page  # one self-contained page: nothing is loaded
    assert "<!--" not in page
    left = subprocess.run(["pgrep", "-f", str(state)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_the_small_demo_on_grocery_purchases(tmp_path: Path):
    result = demo(tmp_path)
    holds(result, tmp_path)
    explained = subprocess.run(
        [ROOT / "beforehand", "explain", result["example"]["user_id"], "--json"],
        env={**os.environ, "BEFOREHAND_STATE": str(tmp_path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    explanation = json.loads(explained.stdout.splitlines()[-1])["explanation"]
    assert explanation["release"] == result["release"]
    assert [rung["rung"] for rung in explanation["rungs"]] == ["generate", "nearline", "cohort", "popular"]
    assert explanation["assets"]["intent_state"]["state"] in ("FRESH", "STALE")
    again = subprocess.run(
        [ROOT / "beforehand", "build", "--data", "journey-small", "--set", "model.epochs=3", "--json"],
        env={**os.environ, "BEFOREHAND_STATE": str(tmp_path)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    assert json.loads(again.stdout.splitlines()[-1])["release"] == result["release"]


def test_the_small_demo_on_a_real_log_with_real_times(tmp_path: Path):
    if not INVOICES.exists():
        if os.environ.get("BEFOREHAND_REQUIRE_SHARED") == "1":
            pytest.fail(f"{INVOICES} is missing, and BEFOREHAND_REQUIRE_SHARED=1")
        pytest.skip(f"no {INVOICES}: this test needs the Online Retail log")
    result = demo(tmp_path, "--data", "online-retail", str(INVOICES))
    holds(result, tmp_path)
    assert result["data"]["rejected"]
