"""fp16 and int8 copies: judged by what they keep of the lists, chosen by speed, and never a reason to fail."""

import json
import shutil

import numpy as np
import onnx
import pytest

from offline.build import variants
from offline.build.variants import FP16, FP32, INT8, Judge, Judged, choose, judge_variants, put_chosen
from offline.export import MAX_IR, OPSET, check_runtime
from offline.release_folder import MINIMUM_RUNTIMES
from schemas.errors import ReleaseError
from schemas.graphs import DECODER, INTENT_ENCODER, PROMPT_ENCODER
from schemas.locations import ROOT

FIXTURE = ROOT / "tests" / "fixtures"
KINDS = {"tensor(int64)": np.int64, "tensor(float)": np.float32}


@pytest.fixture(scope="module")
def arrays():
    return {path.stem: np.load(path) for path in (FIXTURE / "release/arrays").glob("*.npy")}


@pytest.fixture(scope="module")
def requests():
    """The fixture's inputs, one request a row (the first has no events; near-line would not encode it)."""
    import onnxruntime

    told = json.loads((FIXTURE / "expected.json").read_text())
    out = []
    for row in range(1, 4):
        request = {}
        for graph in (INTENT_ENCODER, PROMPT_ENCODER, DECODER):
            kinds = {
                i.name: KINDS[i.type] for i in onnxruntime.InferenceSession(FIXTURE / "release" / graph).get_inputs()
            }
            named = told[graph]["inputs"].items()
            request[graph] = {n: np.asarray(v if n == "weights" else v[row : row + 1], kinds[n]) for n, v in named}
        out.append(request)
    return out


@pytest.fixture
def folder(tmp_path):
    for graph in variants.GRAPHS:
        shutil.copy(FIXTURE / "release" / graph, tmp_path / graph)
    return tmp_path


def test_every_copy_is_judged_and_fp32_keeps_everything(folder, arrays, requests):
    judge = Judge(folder, arrays, requests, min_overlap=0.5)
    judged = judge_variants(folder, judge)
    put_chosen(folder, judged)
    assert {(one.graph, one.kind) for one in judged} == {(g, k) for g in variants.GRAPHS for k in (FP32, FP16, INT8)}
    for one in judged:
        assert one.failed or (0 <= one.overlap <= 1 and one.ms > 0 and one.num_bytes > 0)
        assert one.kind != FP32 or one.overlap == 1.0
    assert [one.graph for one in judged if one.chosen] == list(variants.GRAPHS)
    assert sorted(path.name for path in folder.iterdir()) == sorted(variants.GRAPHS)


def test_the_prompt_encoder_stays_as_it_is(folder, arrays, requests, monkeypatch):
    monkeypatch.setattr(variants, "FASTER", 1e9)
    before = (folder / PROMPT_ENCODER).read_bytes()
    before_intent = (folder / INTENT_ENCODER).read_bytes()
    judged = judge_variants(folder, Judge(folder, arrays, requests, min_overlap=0.0))
    put_chosen(folder, judged)
    assert (folder / INTENT_ENCODER).read_bytes() != before_intent
    assert (folder / PROMPT_ENCODER).read_bytes() == before
    for one in judged:
        if one.graph == INTENT_ENCODER and one.kind == INT8:
            assert not one.failed


def test_a_copy_that_changes_the_lists_is_not_within(folder, arrays, requests):
    """A decoder whose weights are noise keeps few of the lists' items."""
    model = onnx.load(folder / DECODER)
    rng = np.random.default_rng(0)
    for weight in model.graph.initializer:
        array = onnx.numpy_helper.to_array(weight)
        if array.dtype == np.float32 and array.ndim == 2:
            weight.CopyFrom(onnx.numpy_helper.from_array(rng.standard_normal(array.shape).astype("f4"), weight.name))
    onnx.save(model, folder / "noise.onnx")
    one = Judge(folder, arrays, requests, min_overlap=0.98)(DECODER, INT8, folder / "noise.onnx")
    assert not one.within
    assert one.overlap < 0.98


def test_a_copy_that_can_not_be_made_is_told_and_fp32_stays(folder, arrays, requests, monkeypatch):
    def fail(_source, _target):
        raise ValueError("no such operator")

    before = {graph: (folder / graph).read_bytes() for graph in variants.GRAPHS}
    monkeypatch.setattr(variants, "MAKERS", {FP16: fail, INT8: fail})
    judged = judge_variants(folder, Judge(folder, arrays, requests, min_overlap=0.98))
    put_chosen(folder, judged)
    assert all("no such operator" in one.failed for one in judged if one.kind != FP32)
    assert {graph: (folder / graph).read_bytes() for graph in variants.GRAPHS} == before


def judged(kind, ms, *, within=True, failed=""):
    return Judged(DECODER, kind, 100, ms, 0.99, within, failed=failed)


@pytest.mark.parametrize(
    ("copies", "kind"),
    [
        ([judged(FP16, 3.0), judged(INT8, 1.0)], INT8),
        ([judged(FP16, 1.0), judged(INT8, 0.5, within=False)], FP16),
        ([judged(FP16, 1.99), judged(INT8, 2.5)], FP32),
        ([judged(FP16, 0.0, failed="no"), judged(INT8, 0.0, failed="no")], FP32),
    ],
)
def test_the_fastest_within_the_bound_is_chosen_when_it_is_clearly_faster(copies, kind):
    assert choose([judged(FP32, 2.0), *copies]).kind == kind


def test_a_graph_that_is_too_new_for_the_declared_runtime_is_refused(folder):
    check_runtime(folder / DECODER)
    model = onnx.load(folder / PROMPT_ENCODER)
    model.ir_version = MAX_IR + 1
    onnx.save(model, folder / "new.onnx")
    with pytest.raises(ReleaseError, match=rf"new.onnx: its IR version .* {MAX_IR}"):
        check_runtime(folder / "new.onnx")
    assert {"onnxruntime": "1.20", "opset": str(OPSET)} == MINIMUM_RUNTIMES
