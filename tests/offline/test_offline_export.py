"""The fixture release: signed, whole, and the same numbers in onnxruntime as in torch."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

from offline.export import check_parity, graph_arrays
from offline.index.trie import category_sets, trie_arrays
from schemas.errors import ReleaseError
from schemas.graphs import DECODER, INTENT_ENCODER, OTHER_ARRAYS, PROMPT_ENCODER, decoder_arrays
from schemas.locations import ROOT
from schemas.release import Catalogue, Profiles, load_public_key, read_manifest, verify_files

FOLDER = ROOT / "tests" / "fixtures"
RELEASE = FOLDER / "release"


@pytest.fixture(scope="module")
def manifest():
    return read_manifest(RELEASE, load_public_key(FOLDER / "release.pub"))


@pytest.fixture(scope="module")
def expected():
    return json.loads((FOLDER / "expected.json").read_text())


def run(graph, inputs, levels):
    session = onnxruntime.InferenceSession(RELEASE / graph)
    arrays = {name: np.load(RELEASE / "arrays" / f"{name}.npy") for name in graph_arrays(graph, levels)}
    kinds = {"tensor(int64)": np.int64, "tensor(float)": np.float32}
    typed = {given.name: kinds[given.type] for given in session.get_inputs()}
    return session.run(None, {n: np.asarray(v, typed[n]) for n, v in inputs.items()} | arrays)


def test_it_is_signed_and_whole(manifest):
    verify_files(RELEASE, manifest)
    names = {f"arrays/{name}.npy" for name in ("item_in", *decoder_arrays(3), *OTHER_ARRAYS)}
    assert names <= set(manifest.content.files)


def test_catalogue_and_profiles_fit_the_sizes(manifest):
    import msgspec

    catalogue = msgspec.msgpack.decode((RELEASE / "catalogue.msgpack").read_bytes(), type=Catalogue)
    profiles = msgspec.msgpack.decode((RELEASE / "profiles.msgpack").read_bytes(), type=Profiles)
    assert len(catalogue.item_ids) == len(set(catalogue.item_ids)) == manifest.content.model.num_items
    assert len(profiles.buckets) == manifest.content.model.num_buckets
    assert max(profiles.users.values()) < len(profiles.buckets)


def test_onnxruntime_gives_the_numbers_of_torch(expected):
    intent = run(INTENT_ENCODER, expected[INTENT_ENCODER]["inputs"], 3)[0]
    assert np.allclose(intent[:, -1], expected[INTENT_ENCODER]["outputs"]["last_row"], atol=1e-4)
    prompt = run(PROMPT_ENCODER, expected[PROMPT_ENCODER]["inputs"], 3)[0]
    assert np.allclose(prompt, expected[PROMPT_ENCODER]["outputs"]["prompt"], atol=1e-4)
    item, score = run(DECODER, expected[DECODER]["inputs"], 3)
    assert item.tolist() == expected[DECODER]["outputs"]["item"]
    assert np.allclose(score, expected[DECODER]["outputs"]["score"], atol=1e-4)


def test_every_request_alone_is_answered_as_in_the_batch(expected):
    inputs = expected[DECODER]["inputs"]
    for row in range(len(inputs["intent"])):
        alone = {name: value if name == "weights" else value[row : row + 1] for name, value in inputs.items()}
        assert run(DECODER, alone, 3)[0].tolist() == [expected[DECODER]["outputs"]["item"][row]]


def test_another_catalogue_needs_no_new_session(expected):
    """The trie is an input: the same graph decodes a catalogue of three items."""
    arrays = trie_arrays(np.array([[0, 0, 0], [0, 1, 0], [7, 2, 1]]))
    arrays |= {"item_out": np.zeros((3, 16), np.float32), "item_bias": np.zeros(3, np.float32)}
    arrays |= {"item_category": np.zeros(3, np.int64)}
    arrays |= category_sets(arrays["item_path"], arrays["item_category"])
    inputs = {name: np.asarray(value) for name, value in expected[DECODER]["inputs"].items()}
    inputs |= {"neighbour_item": np.full((4, 8), -1), "exclude": np.full((4, 1), -1), "allow": np.full((4, 1), -1)}
    session = onnxruntime.InferenceSession(RELEASE / DECODER)
    floats = {given.name for given in session.get_inputs() if given.type == "tensor(float)"}
    inputs = {name: np.asarray(v, np.float32 if name in floats else np.int64) for name, v in inputs.items()}
    item, score = session.run(None, inputs | arrays)
    assert [sorted(row[:3]) for row in item.tolist()] == [[0, 1, 2]] * 4
    assert (item[:, 3:] == -1).all()
    assert np.isfinite(score).all()


def test_graphs_hold_nothing_of_the_machine_that_made_them():
    """Also inside the branches of a condition."""
    for graph in (INTENT_ENCODER, PROMPT_ENCODER, DECODER):
        raw = (RELEASE / graph).read_bytes()
        assert b".py" not in raw
        assert b"stack_trace" not in raw


def test_a_graph_that_differs_from_torch_is_refused(expected):
    inputs = {name: torch.tensor(value) for name, value in expected[PROMPT_ENCODER]["inputs"].items()}

    class Other(torch.nn.Module):
        def forward(self, *_inputs):
            return torch.ones(4, 1, 16)

    with pytest.raises(ReleaseError, match="disagree"):
        check_parity(Other(), inputs, RELEASE / PROMPT_ENCODER)
