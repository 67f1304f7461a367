"""Lists from the generator for whole cohorts: its answer to a user of whom only the profile bucket is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import apache_beam as beam
import msgspec
import numpy as np
import onnxruntime
from numpy.typing import NDArray

from offline.build.pipelines import pipeline
from schemas.errors import DataError
from schemas.graphs import DECODER, decoder_arrays
from schemas.release import file_entry

Ints = NDArray[np.int64]
Asked = tuple[int, NDArray[np.float32], NDArray[np.float32]]
"""A bucket, its default intent rows [R, d] and its default prompt rows [P, d]."""


class DecoderFiles(msgspec.Struct, frozen=True):
    """What travels to a worker: paths and a digest. ``arrays`` is a folder of .npy files."""

    graph: str
    graph_sha256: str
    arrays: str
    levels: int
    weights: tuple[float, ...]

    @classmethod
    def of(cls, folder: Path, levels: int, weights: list[float]) -> DecoderFiles:
        """The decoder that the stage ``export`` left in ``folder``."""
        digest = file_entry(folder / DECODER).sha256
        return cls(str(folder / DECODER), digest, str(folder / "arrays"), levels, tuple(weights))


class LoadedDecoder:
    """The session and its arrays, in one process."""

    def __init__(self, files: DecoderFiles) -> None:
        if file_entry(Path(files.graph)).sha256 != files.graph_sha256:
            raise DataError("not the decoder that the build began with", where=files.graph, mend="Build again.")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(files.graph, options, providers=["CPUExecutionProvider"])
        names = decoder_arrays(files.levels)
        self._given = {name: np.load(Path(files.arrays) / f"{name}.npy", mmap_mode="r") for name in names}
        self._given["weights"] = np.asarray(files.weights, np.float32)

    def __call__(self, intent: NDArray[np.float32], prompt: NDArray[np.float32]) -> Ints:
        """The items for one cohort, best first."""
        nothing = np.full((1, 1), -1)
        request = {
            "intent": intent[None],
            "prompt": prompt[None],
            "neighbour_item": nothing,
            "neighbour_score": np.zeros((1, 1), np.float32),
            "exclude": nothing,
            "allow": nothing,
        }
        item = np.asarray(self._session.run(None, {**request, **self._given})[0])
        return item[item >= 0]


_loaded: dict[DecoderFiles, LoadedDecoder] = {}


class Decode(beam.DoFn):
    """Cohorts → (bucket, items). The session is made in the worker, at the first cohort."""

    def __init__(self, files: DecoderFiles) -> None:
        super().__init__()
        self.files = files

    def process(self, element: Asked) -> Iterator[tuple[int, Ints]]:
        """One cohort."""
        if self.files not in _loaded:
            _loaded.clear()
            _loaded[self.files] = LoadedDecoder(self.files)
        bucket, intent, prompt = element
        yield bucket, _loaded[self.files](intent, prompt)


def decode_cohorts(files: DecoderFiles, arrays: Mapping[str, NDArray], folder: Path) -> list[Ints]:
    """The pipeline; the list of every bucket. Writes ``generated-BUCKET.npy`` each into ``folder``."""
    intents, prompts = arrays["intent_defaults"], arrays["prompt_defaults"]
    asked: list[Asked] = [
        (bucket, np.asarray(intent, np.float32), np.asarray(prompt, np.float32))
        for bucket, (intent, prompt) in enumerate(zip(intents, prompts, strict=True))
    ]
    prefix = folder / "generated"
    with pipeline() as start:
        _ = (
            start
            | "cohorts" >> beam.Create(asked, reshuffle=False)
            | "decode" >> beam.ParDo(Decode(files))
            | "write" >> beam.MapTuple(lambda bucket, items: np.save(f"{prefix}-{bucket}.npy", items))
        )
    return [np.load(f"{prefix}-{bucket}.npy") for bucket in range(len(asked))]
