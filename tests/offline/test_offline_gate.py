"""The gate's thresholds: by name, by share, and what a refusal tells."""

import tomllib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.build.gate import check_gate, missed
from offline.metrics import quality
from schemas.errors import PlanError, ReleaseError
from schemas.locations import releases_dir
from schemas.plan import Source, check_plan
from schemas.plan_types import GATE_METRICS
from schemas.registry import Registry, ReleaseRow, Status

TEXT = (Path(__file__).parents[2] / "plan.toml").read_text()
OLD = {"recall_at_10": 0.2, "ndcg_at_10": 0.1, "coverage": 0.5, "calibration_error": 0.1}


def plan(section):
    head = TEXT[: TEXT.index("[gate]")]
    text = f"{head}[gate]\n{section}"
    return check_plan(tomllib.loads(text), Source("plan.toml", text))


def publish(name, metrics, data="shop"):
    folder = releases_dir() / name
    folder.mkdir(parents=True)
    (folder / "report.json").write_bytes(msgspec.json.encode({"data": data}))
    Registry().publish(ReleaseRow(name, str(folder), "h", metrics, Status.FUTURE, 1), why="a test")


@pytest.mark.parametrize(
    ("new", "low"),
    [
        ({}, []),
        ({"recall_at_10": 0.181, "ndcg_at_10": 0.0901, "coverage": 0.41, "calibration_error": 0.124}, []),
        ({"recall_at_10": 0.179}, ["recall_at_10"]),
        ({"recall_at_10": 0.9, "coverage": 0.39, "calibration_error": 0.13}, ["coverage", "calibration_error"]),
        ({"recall_at_10": None}, ["recall_at_10"]),
    ],
)
def test_each_named_metric_is_judged_by_its_share(new, low):
    gate = {"recall_at_10": 0.9, "ndcg_at_10": 0.9, "coverage": 0.8, "calibration_error": 0.8}
    values = {name: value for name, value in (OLD | new).items() if value is not None}
    assert [one.metric for one in missed(gate, values, OLD)] == low


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_an_equal_release_holds_any_share_up_to_one(share, value, error):
    values = {"recall_at_10": value, "calibration_error": error}
    assert missed(dict.fromkeys(values, share), values, values) == []


def test_a_metric_that_is_not_named_or_new_to_the_current_release_is_not_judged():
    assert missed({}, {"recall_at_10": 0.0}, OLD) == []
    assert missed({"novelty": 1.0}, {"novelty": 1.0}, OLD) == []


def test_a_refusal_names_every_metric_with_both_values():
    publish("old", OLD)
    Registry().promote("old", why="a test")
    publish("new", OLD | {"recall_at_10": 0.1234, "coverage": 0.0567})
    gate = {"recall_at_10": 0.9, "ndcg_at_10": 0.9, "coverage": 0.9}
    with pytest.raises(ReleaseError) as caught:
        check_gate(gate, Registry(), "new", "shop")
    told = str(caught.value)
    assert "recall_at_10 is 0.1234, the current release has 0.2000, at least 0.1800 needed" in told
    assert "coverage is 0.0567, the current release has 0.5000, at least 0.4500 needed" in told
    assert "ndcg_at_10" not in told
    assert "other data" in check_gate(gate, Registry(), "new", "another shop")
    assert "novelty" in check_gate({"novelty": 1.0}, Registry(), "new", "shop")
    assert check_gate(gate, Registry(), "old", "shop") == ""


def test_the_plan_may_name_several_metrics_or_none():
    assert plan("recall_at_10 = 0.9\ncoverage = 0.5\n").gate == {"recall_at_10": 0.9, "coverage": 0.5}
    assert plan("").gate == {}


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("recall_at_11 = 0.9", "gate.recall_at_11: unknown metric"),
        ("coverage = 0.9\nrecal_at_10 = 0.9", "Did you mean recall_at_10"),
        ("coverage = 0.9\nnovelty = -1", "gate.novelty"),
        ("coverage = 0.9\nnovelty = 'much'", "gate.novelty"),
    ],
)
def test_the_plan_check_refuses_an_unknown_name_or_a_bad_share(section, told):
    with pytest.raises(PlanError) as caught:
        plan(section)
    assert told in str(caught.value)


def test_all_that_is_measured_of_lists_may_be_named():
    names = quality(np.array([[1]]), [np.array([1])])
    assert {f"{of}{name}" for of in ("", "validation_", "prompted_") for name in names} <= set(GATE_METRICS)
