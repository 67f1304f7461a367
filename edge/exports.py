"""The prompt encoder exported as fp32, fp16 and int8: measured, and the fastest within the bounds is kept.

Two bounds: how far an export is from fp32 (the plan's ``edge.max_difference``, as a share of the root mean square of
the rows), and how far it is from itself when the runtime runs it another way (``MAX_SPREAD``): what changes with the
optimiser changes from device to device, and then the SDKs would not agree.
"""

from __future__ import annotations

import logging
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.features import Feeds
from edge.layout import Measured
from schemas.errors import ReleaseError

MAX_SPREAD = 1e-5
TIE = 1.25
TIE_MS = 0.1
"""Exports within this of the fastest are as fast; of them the smallest is kept, so that noise decides nothing."""
FP32, FP16, INT8 = "fp32", "fp16", "int8"
KINDS = (FP32, FP16, INT8)


@dataclass(frozen=True)
class Export:
    """One export, its form for a quick start, and how it did."""

    kind: str
    onnx: bytes
    ort: bytes
    measured: Measured


def make_exports(graph: bytes, probes: list[Feeds], max_difference: float) -> list[Export]:
    """All three exports, measured on ``probes``.

    Raises:
        ReleaseError: the ``onnx`` package is missing; it is needed to make them, not to run them.
    """
    raw = {FP32: graph, FP16: _fp16(graph), INT8: _int8(graph)}
    expected = _Run(graph).all(probes)
    bound = max_difference * float(np.sqrt(np.mean(np.square(expected))))
    return [_measure(kind, raw[kind], probes, expected, bound) for kind in KINDS]


def only_fp32(graph: bytes, probes: list[Feeds]) -> list[Export]:
    """The graph as it is; needs no ``onnx``."""
    return [_measure(FP32, graph, probes, _Run(graph).all(probes), 0.0)]


def choose(exports: list[Export], kind: str | None = None) -> Export:
    """The smallest of the fastest within the bounds, or the one of ``kind``.

    Raises:
        ReleaseError: the one that was asked for is not within the bounds.
    """
    within = [export for export in exports if export.measured.within]
    if kind is not None:
        within = [export for export in within if export.kind == kind]
    if not within:
        said = {e.kind: (e.measured.max_abs_difference, e.measured.spread) for e in exports}
        mend = "Raise edge.max_difference in the plan, or choose another."
        raise ReleaseError("not within the bounds", where="--graph", value=kind or said, mend=mend)
    best_ms = min(export.measured.encode_ms for export in within)
    as_fast = [e for e in within if e.measured.encode_ms <= max(best_ms * TIE, best_ms + TIE_MS)]
    return min(as_fast, key=lambda export: export.measured.num_bytes)


def _measure(kind: str, raw: bytes, probes: list[Feeds], expected: NDArray, bound: float) -> Export:
    run = _Run(raw)
    rows = run.all(probes)
    plain = _Run(raw, optimised=False).all(probes)
    difference, spread = float(np.abs(rows - expected).max()), float(np.abs(rows - plain).max())
    within = difference <= bound and spread <= MAX_SPREAD
    return Export(kind, raw, _ort_format(raw), Measured(len(raw), difference, spread, run.median_ms(probes), within))


class _Run:
    """A session as a device has it: one thread."""

    def __init__(self, graph: bytes, *, optimised: bool = True, save: Path | None = None) -> None:
        import onnxruntime as ort  # noqa: PLC0415 - slow to import, and only making a bundle needs it here

        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        levels = ort.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
        if save is not None:
            # The basic level holds on every processor; what the extended ones fuse may suit this machine only.
            options.graph_optimization_level = levels.ORT_ENABLE_BASIC
            options.optimized_model_filepath = str(save)
            options.add_session_config_entry("session.save_model_format", "ORT")
        self._session: Any = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def all(self, probes: list[Feeds]) -> NDArray:
        """The rows of every probe, [probes, P, d]."""
        return np.concatenate([self._session.run(["prompt"], feeds)[0] for feeds in probes])

    def median_ms(self, probes: list[Feeds]) -> float:
        """Of one run."""
        took: list[float] = []
        for feeds in probes:
            begun = time.perf_counter()
            self._session.run(["prompt"], feeds)
            took.append((time.perf_counter() - begun) * 1000)
        return round(float(np.median(took)), 4)


def _ort_format(graph: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ort"
        _Run(graph, save=path)
        return path.read_bytes()


def _int8(graph: bytes) -> bytes:
    onnx = _onnx()
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - it imports onnx

    # QUInt8: with QInt8 the product of two bytes can saturate on one processor and not on another.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        logging.getLogger().disabled = True  # it advises on the root logger, for every graph, what was done at export
        try:
            quantize_dynamic(onnx.load_from_string(graph), path, weight_type=QuantType.QUInt8)
        finally:
            logging.getLogger().disabled = False
        return _plain(onnx.load(path))


def _fp16(graph: bytes) -> bytes:
    onnx = _onnx()
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415 - it imports onnx

    return _plain(convert_float_to_float16(onnx.load_from_string(graph), keep_io_types=True))


def _onnx() -> Any:
    try:
        onnx = import_module("onnx")  # only here, so that the rest of the room runs without it
    except ImportError:
        mend = "Install onnx in this environment, or give --graph fp32."
        raise ReleaseError("int8 and fp16 can't be made", where="onnx", value="not installed", mend=mend) from None
    return onnx


def _plain(model: Any) -> bytes:
    """Equal weights, equal bytes."""
    model.producer_version = ""
    return model.SerializeToString(deterministic=True)
