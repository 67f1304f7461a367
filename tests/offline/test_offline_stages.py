"""Stages: skipped when nothing changed, whole after a kill; texts are encoded once."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from offline.build import encode_stage, text_encoder
from offline.build.encode_stage import encode
from offline.build.stage import Build, Stage, read_record, run_stage
from offline.build.text_encoder import EncoderFiles
from schemas.errors import DataError
from schemas.plan import load_plan


@pytest.fixture
def build(state):
    one = Build("shop", load_plan())
    one.data.mkdir(parents=True)
    (one.data / "events.parquet").write_bytes(b"events")
    return one


def counting(name="count", after=(), settings=lambda plan: plan.model.seed):
    runs: list[Path] = []

    def run(_build, folder):
        runs.append(folder)
        (folder / "out.txt").write_text(str(len(runs)))
        return {"runs": len(runs)}

    return Stage(name, run, settings, ("events.parquet",), after), runs


def again(build, *sets):
    return Build(build.name, load_plan(overrides=list(sets)))


def test_an_unchanged_stage_is_skipped(build):
    stage, runs = counting()
    first = run_stage(stage, build)
    second = run_stage(stage, again(build))
    assert len(runs) == 1
    assert first.hash == second.hash


def test_it_runs_again_when_a_file_a_setting_or_an_earlier_stage_changes(build):
    stage, runs = counting()
    later, later_runs = counting("later", after=("count",), settings=lambda _plan: None)

    def both(one):
        run_stage(stage, one)
        run_stage(later, one)
        return len(runs), len(later_runs)

    assert both(build) == (1, 1)
    assert both(again(build, "model.seed=9")) == (2, 2)
    assert both(again(build, "model.seed=9", "online.workers=2")) == (2, 2)
    (build.data / "events.parquet").write_bytes(b"others")
    assert both(again(build, "model.seed=9")) == (3, 3)


def test_force_runs_it_all_the_same(build):
    stage, runs = counting()
    run_stage(stage, build)
    build.force = True
    run_stage(stage, build)
    assert len(runs) == 2
    assert (build.folder("count") / "out.txt").read_text() == "2"


def test_a_failure_leaves_the_old_result(build):
    stage, _ = counting()
    old = run_stage(stage, build)

    def fail(_build, folder):
        (folder / "half.txt").write_text("half")
        raise RuntimeError

    (build.data / "events.parquet").write_bytes(b"others")
    broken = Stage("count", fail, stage.settings, stage.files)
    with pytest.raises(RuntimeError):
        run_stage(broken, again(build))
    record = read_record(build, "count")
    assert record is not None
    assert record.hash == old.hash
    assert sorted(p.name for p in (build.work / "count").iterdir()) == sorted([old.hash, "stage.json"])


def test_old_results_are_cleared_away(build):
    stage, _ = counting()
    run_stage(stage, build)
    (build.data / "events.parquet").write_bytes(b"others")
    new = run_stage(stage, again(build))
    assert sorted(p.name for p in (build.work / "count").iterdir()) == sorted([new.hash, "stage.json"])


class FakeEncoder:
    """A vector that tells the text's length; counts what it is given."""

    texts = 0

    def __init__(self, files):
        pass

    def __call__(self, texts):
        FakeEncoder.texts += len(texts)
        return np.array([[len(text), 1.0] for text in texts], np.float32)


@pytest.fixture
def encoding(build, monkeypatch):
    monkeypatch.setattr(encode_stage, "encoder_files", lambda _name, threads: EncoderFiles("m", "t", "digest", threads))
    monkeypatch.setattr(text_encoder, "load", FakeEncoder)
    monkeypatch.setattr(text_encoder, "_loaded", {})
    monkeypatch.setattr(encode_stage, "alone_ms", lambda _texts, _files: 1.0)
    monkeypatch.setattr(FakeEncoder, "texts", 0)
    return Stage("encode", encode, lambda _plan: None, ("catalogue.parquet",))


def catalogue(build, texts):
    pl.DataFrame({"text": texts}).write_parquet(build.data / "catalogue.parquet")


def test_only_new_texts_are_encoded(build, encoding):
    catalogue(build, ["tea", "green tea", "tea"])
    first = run_stage(encoding, build)
    assert first.result["encoded"] == 2
    catalogue(build, ["green tea", "soap", "tea"])
    second = run_stage(encoding, again(build))
    assert second.result["encoded"] == 1
    build.records["encode"] = second
    vectors = np.load(build.folder("encode") / "text.npy")
    assert vectors[:, 0].tolist() == [9.0, 4.0, 3.0]


def test_encoding_again_encodes_nothing(build, encoding):
    catalogue(build, ["tea", "green tea"])
    run_stage(encoding, build)
    forced = again(build)
    forced.force = True
    assert run_stage(encoding, forced).result["encoded"] == 0
    assert FakeEncoder.texts == 2


def test_another_model_encodes_everything_again(build, encoding, monkeypatch):
    catalogue(build, ["tea"])
    run_stage(encoding, build)
    monkeypatch.setattr(encode_stage, "encoder_files", lambda _name, threads: EncoderFiles("m", "t", "other", threads))
    forced = again(build)
    forced.force = True
    assert run_stage(encoding, forced).result["encoded"] == 1


def test_a_catalogue_that_shrank_too_far_is_refused(build, encoding):
    catalogue(build, [f"tea {number}" for number in range(10)])
    run_stage(encoding, build)
    catalogue(build, [f"tea {number}" for number in range(7)])
    with pytest.raises(DataError, match=r"shrank by more than 20%, from 10 items \(got 7\)"):
        run_stage(encoding, again(build))
    catalogue(build, [f"tea {number}" for number in range(8)])
    run_stage(encoding, again(build))
    catalogue(build, ["tea 1"])
    forced = again(build)
    forced.force = True
    assert run_stage(encoding, forced).result["items"] == 1
