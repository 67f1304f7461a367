"""A stage alone: it builds only on stages that are up to date, so that two chains on one data set never mix."""

import pytest
from helpers_explain import made_stages

from offline.build import stages
from offline.build.stage import Build
from offline.build.stages import run_build
from schemas.errors import DataError
from schemas.plan import load_plan


@pytest.fixture
def shop(state, monkeypatch):
    monkeypatch.setattr(stages, "STAGES", made_stages([]))
    folder = state / "data" / "shop"
    folder.mkdir(parents=True)
    (folder / "events.parquet").write_bytes(b"events")
    return folder


def build(*sets):
    return Build("shop", load_plan(overrides=list(sets)))


def test_a_stage_before_it_that_did_not_run_is_named(shop):
    with pytest.raises(DataError, match="the stage index has not run"):
        run_build(build(), "export")


def test_new_data_under_a_chain_that_is_under_way_are_refused(shop):
    run_build(build())
    (shop / "events.parquet").write_bytes(b"tomorrow's")
    with pytest.raises(DataError, match=r"index is out of date: file events.parquet changed.*build index"):
        run_build(build(), "export")
    run_build(build(), "index")
    with pytest.raises(DataError, match="train is out of date: stage index changed"):
        run_build(build(), "export")
    run_build(build(), "train")
    assert "export" in run_build(build(), "export")


def test_another_plan_than_that_of_the_stages_before_is_refused(shop):
    run_build(build())
    with pytest.raises(DataError, match="train is out of date: settings changed"):
        run_build(build("model.seed=9"), "export")
