"""Cohort lists: by counts, by the generator, or both; the same on every runner."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.build import cohort_decoder, lists_stage
from offline.build.cohort_decoder import DecoderFiles, LoadedDecoder, decode_cohorts
from offline.build.lists_stage import Ranked, count_by_bucket, fused
from offline.build.pipelines import OPTIONS, use
from schemas.errors import DataError
from schemas.locations import ROOT

FIXTURE = ROOT / "tests" / "fixtures" / "release"
WEIGHTS = [1.0, 1.0, 1.0, 0.02]
LEVELS = 3


@pytest.fixture
def arrays():
    names = ("intent_defaults", "prompt_defaults")
    return {name: np.load(FIXTURE / "arrays" / f"{name}.npy") for name in names}


@pytest.fixture(autouse=True)
def forget_runner(monkeypatch):
    monkeypatch.setenv(OPTIONS, "")
    monkeypatch.setattr(cohort_decoder, "_loaded", {})


def counts(folder):
    rng = np.random.default_rng(0)
    parts = [(rng.integers(0, 3, 50), rng.integers(0, 9, 50), np.ones(50)) for _ in range(4)]
    folder.mkdir()
    count_by_bucket(parts, 9, folder / "counts")
    return {path.name: np.load(path).tolist() for path in sorted(folder.iterdir())}, parts


def test_cohorts_get_what_the_decoder_says_of_their_default_rows(tmp_path, arrays):
    files = DecoderFiles.of(FIXTURE, LEVELS, WEIGHTS)
    found = decode_cohorts(files, arrays, tmp_path)
    one = LoadedDecoder(files)
    assert len(found) == len(arrays["intent_defaults"])
    for bucket, items in enumerate(found):
        assert items.tolist() == one(arrays["intent_defaults"][bucket], arrays["prompt_defaults"][bucket]).tolist()
        assert len(set(items.tolist())) == len(items) > 0
    assert any(items.tolist() != found[0].tolist() for items in found), "buckets differ"


def test_a_decoder_that_was_exchanged_meanwhile_is_refused(tmp_path):
    shutil.copytree(FIXTURE, tmp_path / "release")
    files = DecoderFiles.of(tmp_path / "release", LEVELS, WEIGHTS)
    graph = tmp_path / "release" / "decoder.onnx"
    graph.write_bytes(graph.read_bytes() + b"x")
    with pytest.raises(DataError, match="not the decoder"):
        LoadedDecoder(files)


def test_counts_by_bucket_against_counting(tmp_path):
    found, parts = counts(tmp_path / "counts")
    bucket, item = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
    for one in (1, 2):
        assert found[f"counts-{one}.npy"] == np.bincount(item[bucket == one], minlength=9).tolist()
    assert found["counts-0.npy"] == np.bincount(item, minlength=9).tolist(), "bucket 0 is everybody"


@settings(max_examples=60)
@given(st.permutations(range(8)), st.permutations(range(8)), st.integers(0, 8), st.integers(1, 8))
def test_fusing_against_its_definition(first, rest, size, length):
    counted = Ranked(np.array([rest]), np.arange(8, 0, -1.0)[None])
    given_lists = [[np.array(first[:size], np.int64)], [np.array(rest[:3])]]
    expected = dict.fromkeys(range(8), 0.0)
    for (items,) in given_lists:
        for rank, item in enumerate(items.tolist()):
            expected[item] += 1 / (60 + rank)
    held = [item for item in expected if expected[item] > 0]
    order = sorted(held, key=lambda item: (-round(expected[item], 12), item)) + [i for i in rest if expected[i] == 0]
    got = fused(given_lists, counted, 8, length)
    assert got.items[0].tolist() == order[:length]
    assert (np.diff(got.scores[0]) <= 0).all()


def test_lists_are_judged_on_users_of_a_known_bucket():
    lists = np.array([[0, 1], [2, 3]])
    nobody = [case_of(0, [0])]
    assert lists_stage._recall(lists, nobody) == 0.0
    assert lists_stage._recall(lists, [*nobody, case_of(1, [2]), case_of(1, [9])]) == 1.0


def case_of(bucket, target):
    from types import SimpleNamespace

    return SimpleNamespace(bucket=bucket, target=np.array(target))


def test_a_runner_and_its_options_reach_the_pipelines():
    use("DirectRunner", ["--direct_num_workers=1", "--temp_location=/tmp/with space"])
    assert os.environ[OPTIONS] == "--runner=DirectRunner --direct_num_workers=1 '--temp_location=/tmp/with space'"


def prism() -> Path:
    """The runner's binary; built once, where Go and its module proxy are."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: Prism can't be built")
    folder = ROOT / ".beforehand" / "prism"
    if not (folder / "prism").exists():
        command = ["go", "install", "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"]
        made = subprocess.run(
            command, check=False, env={**os.environ, "GOBIN": str(folder)}, capture_output=True, text=True, timeout=280
        )
        if made.returncode:
            pytest.skip(f"Prism could not be built: {made.stderr.strip().splitlines()[-1:]}")
    return folder / "prism"


@pytest.mark.slow
def test_prism_gives_the_same_as_the_default_runner(tmp_path, arrays):
    location = prism()
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    files = DecoderFiles.of(FIXTURE, LEVELS, WEIGHTS)
    here = decode_cohorts(files, arrays, tmp_path / "here"), counts(tmp_path / "here-counts")[0]
    use("PrismRunner", [f"--prism_location={location}", "--environment_type=LOOPBACK"])
    there = decode_cohorts(files, arrays, tmp_path / "there"), counts(tmp_path / "there-counts")[0]
    assert [items.tolist() for items in here[0]] == [items.tolist() for items in there[0]]
    assert here[1] == there[1]
