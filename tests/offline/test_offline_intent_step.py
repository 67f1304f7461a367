"""The encoder step by step gives the rows of the whole encoder, in torch and as a graph, also beyond the band."""

import numpy as np
import onnxruntime
import pytest
import torch

from offline import export
from offline.export import model_arrays
from offline.index.trie import sid_order, trie_arrays
from offline.model.architecture import Architecture
from offline.model.generator import Generator
from offline.model.intent_step import IntentStep
from offline.samples import sample_inputs
from schemas.graphs import INTENT_STEP, LONG_WINDOW

ITEMS, WIDTH, LAYERS, HEADS = 40, 16, 2, 2
TOLERANCE = 1e-4


def generator(window: int) -> tuple[Generator, np.ndarray]:
    arch = Architecture(
        width=WIDTH,
        layers=LAYERS,
        heads=HEADS,
        window=window,
        state_rows=1,
        prompt_rows=1,
        local_events=4,
        levels=2,
        codes=8,
        num_items=ITEMS,
        num_buckets=2,
        vector_width=6,
        k_max=8,
    )
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    codes = np.stack(np.unravel_index(draw.choice(64, ITEMS, replace=False), (8, 8)), axis=1)
    codes = codes[sid_order(codes)]
    model = Generator(arch, draw.standard_normal((ITEMS, 6)), codes).eval()
    with torch.no_grad():
        for block in model.intent_encoder.blocks:
            block.distance.normal_()
            block.down.weight.normal_(std=0.2)
    return model, codes


def events(count: int) -> list[np.ndarray]:
    draw = np.random.default_rng(count)
    gap = draw.exponential(1.0, (1, count)).astype(np.float32)
    return [draw.integers(1, ITEMS + 1, (1, count)), draw.integers(1, 5, (1, count)), gap]


def in_steps(step, given: list[np.ndarray], sizes: list[int]) -> np.ndarray:
    """Rows of all events, so many at a time."""
    key = value = np.zeros((1, LAYERS, HEADS, 0, WIDTH // HEADS), np.float32)
    rows, at = [], 0
    for size in sizes:
        new = [part[:, at : at + size] for part in given]
        row, more_key, more_value = step(*new, key, value)
        key, value = np.concatenate([key, more_key], 3), np.concatenate([value, more_value], 3)
        rows.append(row)
        at += size
    return np.concatenate(rows, axis=1)


@pytest.mark.parametrize("sizes", [[30], [1] * 30, [29, 1], [0 + 7, 1, 1, 21]])
@pytest.mark.parametrize("window", [30, 9])
def test_torch_gives_the_same_rows(window, sizes):
    model, _ = generator(window)
    step, given = IntentStep(model.intent_encoder), events(30)
    with torch.no_grad():
        table = model.item_in()
        whole = model.intent_encoder(*map(torch.from_numpy, given), table).numpy()

        def run(*inputs):
            return [part.numpy() for part in step(*map(torch.from_numpy, inputs), table)]

        assert np.abs(in_steps(run, given, sizes) - whole).max() < TOLERANCE


def test_the_graph_gives_the_same_rows(tmp_path):
    model, codes = generator(12)
    step = IntentStep(model.intent_encoder)
    with torch.no_grad():
        table = model.item_in()
    samples = sample_inputs(model.arch, codes, 1, neighbours=4, weights=[1.0, 1.0, 1.0, 0.02])
    inputs, path = samples[INTENT_STEP] | {"item_in": table}, tmp_path / INTENT_STEP
    export._export(step, inputs, export._axes(INTENT_STEP, 2), export.OUTPUTS[INTENT_STEP], path)
    export.check_parity(step, inputs, path)
    session = onnxruntime.InferenceSession(path)
    names = [one.name for one in session.get_inputs()][:5]
    given = events(30)
    with torch.no_grad():
        whole = model.intent_encoder(*map(torch.from_numpy, given), table).numpy()

    def run(*parts):
        return session.run(None, dict(zip(names, parts, strict=True)) | {"item_in": table.numpy()})

    for sizes in ([30], [27, 1, 1, 1], [1] * 9 + [21]):
        assert np.abs(in_steps(run, given, sizes) - whole).max() < TOLERANCE


@pytest.mark.parametrize(("window", "has"), [(LONG_WINDOW - 1, False), (LONG_WINDOW, True)])
def test_only_a_long_window_has_a_step(tmp_path, monkeypatch, window, has):
    written = []
    monkeypatch.setattr(export, "_export", lambda _module, _inputs, _axes, _outputs, path: written.append(path.name))
    monkeypatch.setattr(export, "check_parity", lambda *_: None)
    model, codes = generator(window)
    arrays = model_arrays(model, trie_arrays(codes), np.zeros(ITEMS, np.int64))
    samples = sample_inputs(model.arch, codes, 1, neighbours=4, weights=[1.0, 1.0, 1.0, 0.02])
    export.export_graphs(model, arrays, samples, tmp_path)
    assert (INTENT_STEP in written) is has
