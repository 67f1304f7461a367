"""The demo's result and its page."""

import json
from pathlib import Path

import pytest

from infra import report
from infra.demo_result import TEXT, summarise
from infra.errors import LauncherError

STAGES = {
    "intent_encode": 0.8,
    "neighbours": 0.2,
    "prompt_encode": 0.1,
    "store": 0.3,
    "decode": 1.2,
}
ASK = {
    "recall_at_10": 0.1,
    "recall_at_50": 0.3,
    "with_prompt": {"recall_at_50": 0.35, "users": 7},
    "without_prompt": {"recall_at_50": 0.3, "users": 7},
    "latency_ms": {"p50": 2.0, "p99": 5.0},
    "whole": {"stages": STAGES, "window_items": 20},
    "rungs": {"generate": 9, "cohort": 1},
    "rungs_with_state": {"generate": 9},
    "unknown_items": 0,
    "late": 0,
    "errors": {},
    "example": {
        "user_id": "<script>u</script>",
        "items": [{"item_id": "7"}],
        "rung": "generate",
        "assets": {"intent_state": {"state": "FRESH", "reason": "ok", "age_s": 1.5}},
        "ledger": {"total_ms": 2.0, "budget_ms": 50, "stages_ms": {"decode": 1.2}},
    },
}
REPLIES = {
    "build": {
        "metrics": {
            "popular_recall_at_10": 0.02,
            "popular_recall_at_50": 0.1,
            "neighbours_recall_at_10": 0.09,
            "neighbours_recall_at_50": 0.28,
        },
        "release": "0123456789abcdef",
        "stages": {"encode": {"alone_ms": 5.0}},
    },
    "ask": ASK,
    "replay": {"freshness_ms": {"p50": 400.0, "p99": 700.0}, "events": 10, "bad": 0, "seconds": 2.0, "rate": 5.0},
    "edge": {"encode_ms": {"p50": 0.3}},
    "data": {"rejected": {}},
    "explain": {"explanation": {"titles": {"7": "Milk & <b>bread</b>"}, "window": ["7", "8"]}},
}


@pytest.fixture
def result():
    return summarise(REPLIES, [{"step": "1/6 Set up", "seconds": 0.5}], 9.0)


def test_live_is_what_the_online_tier_did_and_all_live_is_the_sum(result):
    assert result["live_ms"] == pytest.approx(1.5)
    assert result["all_live_ms"] == pytest.approx(20 * 5.0 + 0.8 + 0.2 + 0.1 + 1.5)
    assert result["all_live_without_text_ms"] == pytest.approx(2.6)


def test_the_text_stage_grows_with_the_window():
    short = {**ASK, "whole": {"stages": STAGES, "window_items": 1}}
    one = summarise({**REPLIES, "ask": short}, [], 1.0)["waterfall"]
    assert [s["ms"] for s in one if s["stage"] == TEXT] == [5.0]


def test_the_page_escapes_what_it_shows(result):
    page = report.render(result)
    assert "<script>" not in page
    assert "&lt;script&gt;u" in page
    assert "Milk &amp; &lt;b&gt;bread" in page
    assert "<!--" not in page


def test_the_longest_bar_fills_the_track(result):
    page = report.render(result)
    assert "width:100.00%" in page
    assert "0.3000" in page


def test_a_run_without_an_answer_still_has_a_page(result):
    result["rungs"] = {}
    result["waterfall"] = [{**stage, "ms": 0.0} for stage in result["waterfall"]]
    result["all_live_ms"] = 0.0
    assert "</html>" in report.render(result)
    assert "Recall@50" in report.as_text(result)


def test_the_report_verb_shows_the_last_demo(result, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    with pytest.raises(LauncherError, match="no demo"):
        report.main([])
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "demo.json").write_text(json.dumps(result))
    assert report.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["release"] == "0123456789abcdef"
    assert (tmp_path / "report" / "demo.html").exists()
    assert report.main(["--nonsense"]) == 2
