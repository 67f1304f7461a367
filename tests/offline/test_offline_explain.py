"""The explanation walks the same stages by the same judge; a build runs what was explained or nothing."""

import pytest
from helpers_explain import made_stages

from offline.build import stages
from offline.build.stage import Build, read_record
from offline.build.stages import digest, explain, run_build
from schemas.errors import StoreError
from schemas.plan import load_plan
from schemas.registry import Registry
from schemas.registry.builds import Builds


@pytest.fixture
def shop(state, monkeypatch):
    """A data set, and three stages that count their runs in place of the real ones."""
    runs: list[str] = []
    monkeypatch.setattr(stages, "STAGES", made_stages(runs))
    folder = state / "data" / "shop"
    folder.mkdir(parents=True)
    (folder / "events.parquet").write_bytes(b"events")
    return runs, folder


def build(*sets, force=False):
    return Build("shop", load_plan(overrides=list(sets)), force=force)


def runs_of(found):
    return {name: one.why for name, one in found.items() if one.why}


def test_it_says_what_then_runs(shop):
    runs, folder = shop
    for changed, expected in [
        ((), {"index": ("it has not run yet",), "train": ("it has not run yet",), "export": ("it has not run yet",)}),
        ((), {}),
        (("model.seed=9",), {"train": ("settings changed",), "export": ("stage train changed",)}),
        (("model.seed=9", "online.workers=3", "assets.candidates.fresh_for=2h"), {}),
    ]:
        one = build(*changed)
        said = explain(one)
        assert runs_of(said) == expected
        assert one.records == {}
        del runs[:]
        run_build(one, expect=digest(said))
        assert runs == list(expected)
    (folder / "events.parquet").write_bytes(b"others")
    assert runs_of(explain(build("model.seed=9")))["index"] == ("file events.parquet changed",)
    assert set(runs_of(explain(build("model.seed=9", force=True)))) == {"index", "train", "export"}


def test_what_was_not_explained_is_refused_before_anything_runs(shop):
    runs, folder = shop
    said = digest(explain(build()))
    (folder / "events.parquet").write_bytes(b"others")
    with pytest.raises(StoreError, match="out of date"):
        run_build(build(), expect=said)
    assert runs == []


def test_every_run_is_written_down_and_every_asset_confirmed(shop):
    runs, _ = shop
    run_build(build())
    run_build(build())
    assert len(runs) == 3
    builds = Builds(Registry().database)
    assert [(b.stage, b.state) for b in builds.last()] == [("export", "done"), ("train", "done"), ("index", "done")]
    usual = builds.usual("shop", "train")
    assert usual is not None and usual.num_bytes == 3
    fresh = builds.freshness()
    assert set(fresh) == {"semantic_index", "generator"}
    assert fresh["generator"].checked_at >= fresh["generator"].made_at


def test_a_failure_is_written_down_and_the_next_run_starts_where_it_stopped(shop, monkeypatch):
    runs, _ = shop
    monkeypatch.setattr(stages, "STAGES", made_stages(runs, fails="train"))
    with pytest.raises(RuntimeError):
        run_build(build())
    states = [(b.stage, b.state) for b in Builds(Registry().database).last()]
    assert states == [("train", "failed"), ("index", "done")]
    del runs[:]
    monkeypatch.setattr(stages, "STAGES", made_stages(runs))
    records = run_build(build())
    assert runs == ["train", "export"]
    assert read_record(build(), "export") is not None
    assert set(records) == {"index", "train", "export"}
