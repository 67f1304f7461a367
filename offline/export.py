"""Export of the three graphs to ONNX, checked against torch before anything is published."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from offline.index.trie import category_sets
from offline.model.generator import Generator
from offline.model.intent_step import IntentStep
from offline.release_folder import OPSET
from schemas.errors import ReleaseError
from schemas.graphs import (
    CATEGORY_SETS,
    DECODER,
    ENCODER_ARRAYS,
    INTENT_ENCODER,
    INTENT_STEP,
    LONG_WINDOW,
    PROMPT_ENCODER,
    decoder_arrays,
)

MAX_IR = 10
"""Of ONNX files that onnxruntime 1.20 reads, the oldest that releases declare (``offline.release_folder``)."""
TOLERANCE = 1e-4
Inputs = Mapping[str, Tensor]
OUTPUTS = {
    INTENT_ENCODER: ("rows",),
    INTENT_STEP: ("rows", "key", "value"),
    PROMPT_ENCODER: ("prompt",),
    DECODER: ("item", "score"),
}
Axes = Sequence[str]
logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of every operator that is not installed
STEP_INPUTS = ("item", "kind", "gap", "past_key", "past_value")
DECODER_REQUEST = ("intent", "prompt", "neighbour_item", "neighbour_score", "exclude", "allow", "weights")


def model_arrays(generator: Generator, trie: Mapping[str, np.ndarray], category: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that the graphs take: the trie's, and the generator's tables."""
    with torch.no_grad():
        tables = {
            "item_in": generator.item_in(),
            "item_out": generator.item_out(),
            "item_bias": generator.item_bias,
            "intent_defaults": generator.intent_defaults,
            "prompt_defaults": generator.prompt_defaults,
        }
        return {
            **trie,
            **{name: table.detach().numpy().astype(np.float32) for name, table in tables.items()},
            "item_category": category.astype(np.int64),
            **category_sets(trie["item_path"], category.astype(np.int64)),
        }


def export_graphs(
    generator: Generator, arrays: Mapping[str, np.ndarray], samples: Mapping[str, Inputs], folder: Path
) -> None:
    """Write the graphs into ``folder``, the step only for a long window; ``samples`` holds, by graph, inputs of its
    own (arrays left out).

    Raises:
        ReleaseError: onnxruntime and torch disagree on the samples.
    """
    generator.eval()
    levels = generator.arch.levels
    modules: dict[str, nn.Module] = {
        INTENT_ENCODER: generator.intent_encoder,
        PROMPT_ENCODER: generator.prompt_encoder,
        DECODER: generator.beam,
    }
    if generator.arch.window >= LONG_WINDOW:
        modules[INTENT_STEP] = IntentStep(generator.intent_encoder)
    for name, module in modules.items():
        tables = {array: torch.from_numpy(arrays[array]) for array in graph_arrays(name, levels)}
        inputs = {**samples[name], **tables}
        _export(module, inputs, _axes(name, levels), OUTPUTS[name], folder / name)
        check_parity(module, inputs, folder / name)


def graph_arrays(graph: str, levels: int) -> Sequence[str]:
    """The arrays that a graph takes beside its own inputs."""
    return () if graph == PROMPT_ENCODER else decoder_arrays(levels) if graph == DECODER else ENCODER_ARRAYS


def check_parity(module: nn.Module, inputs: Inputs, path: Path) -> None:
    """Law 8 at the source: the same items, and numbers within 1e-4.

    Raises:
        ReleaseError: naming the graph and the output.
    """
    with torch.no_grad():
        expected = module(*inputs.values())
    expected = expected if isinstance(expected, tuple) else (expected,)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    got = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    for output, ours, theirs in zip(session.get_outputs(), expected, got, strict=True):
        wrong = float(np.abs(ours.numpy().astype(np.float64) - np.asarray(theirs)).max())
        if not wrong <= (0 if ours.dtype == torch.int64 else TOLERANCE):
            raise ReleaseError(
                "onnxruntime and torch disagree",
                where=f"{path.name} {output.name}",
                value=wrong,
                mend="Do not publish; compare the versions of torch, onnxscript and onnxruntime.",
            )


def check_runtime(path: Path) -> None:
    """Whether the declared runtime can read the graph.

    Raises:
        ReleaseError: naming the graph and what is too new in it.
    """
    model = onnx.load(path, load_external_data=False)
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    for what, got, most in (("opset", opset, OPSET), ("IR version", model.ir_version, MAX_IR)):
        if got > most:
            raise ReleaseError(
                f"its {what} is newer than the declared runtime reads (at most {most})",
                where=path.name,
                value=got,
                mend="Export with another version of onnx, or raise MINIMUM_RUNTIMES.",
            )


def _export(module: nn.Module, inputs: Inputs, axes: Mapping[str, Axes], outputs: Sequence[str], path: Path) -> None:
    shapes = [{axis: name for axis, name in enumerate(axes[key]) if name} for key in inputs]
    own = sum(name in DECODER_REQUEST for name in inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter renames axes, and says so for each
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            dynamo=True,
            dynamic_shapes=(*shapes[:own], tuple(shapes[own:])) if own else tuple(shapes),
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _strip(model)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _axes(graph: str, levels: int) -> Mapping[str, Axes]:
    """Which axes may vary, by input."""
    if graph == INTENT_ENCODER:
        window = ("B", "T")
        return {"item": window, "kind": window, "gap": window, "item_in": ("rows_in",)}
    if graph == INTENT_STEP:
        new, past = ("B", "n"), ("B", "", "", "S")
        return dict(zip(STEP_INPUTS, (new, new, new, past, past), strict=True)) | {"item_in": ("rows_in",)}
    if graph == PROMPT_ENCODER:
        local = ("B", "E")
        return {"bucket": ("B",), "clock": ("B",), "codes": local, "kind": local, "age": local}
    near, batch, items = ("B", "M"), ("B",), ("N",)
    request = (batch, batch, near, near, ("B", "X"), ("B", "A"), ())
    # As far as the exporter knows, a trie's arrays vary independently.
    trie: dict[str, Axes] = {name: (items if name.startswith("item_") else (name,)) for name in decoder_arrays(levels)}
    trie[CATEGORY_SETS] = ("sets", "words")
    return dict(zip(DECODER_REQUEST, request, strict=True)) | trie


def _strip(model: onnx.ModelProto) -> None:
    """Take out what is of this machine only (source lines, paths): equal weights give equal bytes."""
    model.producer_version = ""
    model.doc_string = ""
    del model.metadata_props[:]
    _strip_graph(model.graph)


def _strip_graph(graph: onnx.GraphProto) -> None:
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):  # a branch of a condition
                _strip_graph(attribute.g)
