"""Makes ``slow_encoder.onnx``: the inputs of a prompt encoder, and a loop of minutes. Needs the offline environment.

``.beforehand/envs/offline/bin/python tests/edge/make_slow_encoder.py``
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper

TURNS = 100_000_000
INPUTS = {
    "bucket": (TensorProto.INT64, ["B"]),
    "clock": (TensorProto.FLOAT, ["B", 4]),
    "codes": (TensorProto.INT64, ["B", "E", "L"]),
    "kind": (TensorProto.INT64, ["B", "E"]),
    "age": (TensorProto.FLOAT, ["B", "E"]),
}


def make() -> onnx.ModelProto:
    """Sums ``clock`` over and over."""
    turn = [
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("Add", ["sum", "clock"], ["grown"]),
        helper.make_node("Tanh", ["grown"], ["sum_out"]),
    ]
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        turn,
        "turn",
        [
            info("number", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("sum", TensorProto.FLOAT, ["B", 4]),
        ],
        [info("go_on", TensorProto.BOOL, []), info("sum_out", TensorProto.FLOAT, ["B", 4])],
    )
    turns = helper.make_tensor("turns", TensorProto.INT64, [], [TURNS])
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    nodes = [helper.make_node("Loop", ["turns", "yes", "clock"], ["prompt"], body=body)]
    inputs = [helper.make_tensor_value_info(name, *of) for name, of in INPUTS.items()]
    output = helper.make_tensor_value_info("prompt", TensorProto.FLOAT, ["B", 4])
    graph = helper.make_graph(nodes, "slow", inputs, [output], [turns, yes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


if __name__ == "__main__":
    model = make()
    onnx.checker.check_model(model)
    onnx.save(model, Path(__file__).parent / "slow_encoder.onnx")
