"""The graphs as fp16 and int8 beside fp32: each judged on real requests, the fastest within the bound chosen.

A graph's copy is judged by what it does to the answer: the list of every request with that one graph replaced, against
the list with all three in fp32. *Overlap* is the share of the fp32 list's items that it keeps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16

from schemas.graphs import DECODER, INTENT_ENCODER, INTENT_STEP, PROMPT_ENCODER

FP32, FP16, INT8 = "fp32", "fp16", "int8"
GRAPHS = (INTENT_ENCODER, PROMPT_ENCODER, DECODER)
KEPT = (PROMPT_ENCODER,)
"""Judged, but published as fp32: the bundle for devices makes its own copies of it, on other bounds."""
FASTER = 0.85
"""A copy must take less than this share of fp32's time: noise is no reason to be less exact."""
ROUNDS = 3
MADE_BY_OTHERS = {INTENT_ENCODER: "intent", PROMPT_ENCODER: "prompt"}
"""The decoder's input that an encoder's output becomes."""
Array = NDArray[np.generic]
Feeds = Mapping[str, Array]
Request = Mapping[str, Feeds]
"""By graph."""


class Judged(msgspec.Struct, frozen=True):
    """A copy of one graph. ``ms`` is the median time of a request; without a copy ``failed`` says why."""

    graph: str
    kind: str
    num_bytes: int = 0
    ms: float = 0.0
    overlap: float = 0.0
    within: bool = False
    chosen: bool = False
    failed: str = ""


class Session:
    """A graph as the tiers run it: one thread, its arrays given once."""

    def __init__(self, path: Path, arrays: Feeds) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._arrays = {given.name: arrays[given.name] for given in self._session.get_inputs() if given.name in arrays}

    def __call__(self, feeds: Feeds) -> list[Array]:
        """The outputs for one request."""
        return [np.asarray(out) for out in self._session.run(None, {**feeds, **self._arrays})]


class Judge:
    """Compares copies with the fp32 graphs in ``folder`` on ``requests``: for each, the feeds of the three graphs."""

    def __init__(self, folder: Path, arrays: Feeds, requests: Sequence[Request], min_overlap: float) -> None:
        self._arrays, self._requests, self._min_overlap = arrays, requests, min_overlap
        self._fp32 = {graph: Session(folder / graph, arrays) for graph in GRAPHS}
        self._lists = [self._list(request, {}) for request in requests]

    def __call__(self, graph: str, kind: str, path: Path) -> Judged:
        """How ``path``, a copy of ``graph``, does."""
        session = Session(path, self._arrays)
        ms = self._median_ms(session, graph)
        kept = [
            np.isin(wanted, self._list(request, {graph: session})).mean() if len(wanted) else 1.0
            for request, wanted in zip(self._requests, self._lists, strict=True)
        ]
        overlap = float(np.mean(kept))
        return Judged(graph, kind, path.stat().st_size, ms, round(overlap, 5), overlap >= self._min_overlap)

    def _list(self, request: Request, replaced: Mapping[str, Session]) -> NDArray[np.int64]:
        sessions = {**self._fp32, **replaced}
        decoder = dict(request[DECODER])
        rows = decoder["intent"].shape[1]
        # Rows travel as fp16.
        made = sessions[INTENT_ENCODER](request[INTENT_ENCODER])[0][:, -rows:]
        decoder["intent"] = made.astype(np.float16).astype(np.float32)
        decoder["prompt"] = sessions[PROMPT_ENCODER](request[PROMPT_ENCODER])[0]
        item = sessions[DECODER](decoder)[0].astype(np.int64)
        return item[item >= 0]

    def _median_ms(self, session: Session, graph: str) -> float:
        took = []
        for timed in range(ROUNDS):
            for request in self._requests:
                begun = time.perf_counter()
                session(request[graph])
                if timed:
                    took.append(time.perf_counter() - begun)
        return round(float(np.median(took)) * 1000, 4)


def judge_variants(folder: Path, judge: Judge) -> list[Judged]:
    """Make and judge the copies of the graphs in ``folder``; the graphs stay as they are (``put_chosen``).

    A copy that can't be made or run is told in ``failed`` and is not chosen.
    """
    judged: list[Judged] = []
    for graph in GRAPHS:
        found = [judge(graph, FP32, folder / graph)]
        for kind, make in MAKERS.items():
            copy = folder / f"{kind}-{graph}"
            try:
                make(folder / graph, copy)
                found.append(judge(graph, kind, copy))
            # The converters and the runtime raise whatever they like; none of it may stop a build that has fp32.
            except Exception as error:  # noqa: BLE001
                found.append(Judged(graph, kind, failed=f"{type(error).__name__}: {str(error)[:200]}"))
            copy.unlink(missing_ok=True)
        # Beside a step the whole encoder stays as exact as it: their rows are used for one another.
        stays = graph in KEPT or (graph == INTENT_ENCODER and (folder / INTENT_STEP).exists())
        best = found[0] if stays else choose(found)
        judged += [msgspec.structs.replace(one, chosen=one is best) for one in found]
    return judged


def put_chosen(folder: Path, judged: Sequence[Judged]) -> None:
    """Put the chosen copies in the places of the fp32 graphs."""
    for one in judged:
        if one.chosen and one.kind != FP32:
            copy = folder / f"{one.kind}-{one.graph}"
            MAKERS[one.kind](folder / one.graph, copy)
            copy.replace(folder / one.graph)


def choose(found: Sequence[Judged]) -> Judged:
    """The fastest copy within the bound that is clearly faster than fp32; fp32 else. ``found`` begins with fp32."""
    fp32, *copies = found
    good = [one for one in copies if one.within and not one.failed and one.ms < FASTER * fp32.ms]
    return min(good, key=lambda one: one.ms, default=fp32)


def make_fp16(source: Path, target: Path) -> None:
    """Weights and arithmetic in half precision; inputs and outputs stay as they are."""
    _write(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def make_int8(source: Path, target: Path) -> None:
    """Weights of products as QUInt8 (QInt8 can saturate on one processor and not on another)."""
    logging.getLogger().disabled = True  # it advises on the root logger, for every graph, what was done at export
    try:
        quantize_dynamic(onnx.load(source), target, weight_type=QuantType.QUInt8)
    finally:
        logging.getLogger().disabled = False
    _write(onnx.load(target), target)


MAKERS = {FP16: make_fp16, INT8: make_int8}


def _write(model: onnx.ModelProto, path: Path) -> None:
    """Equal weights, equal bytes."""
    model.producer_version = ""
    path.write_bytes(model.SerializeToString(deterministic=True))
