"""The shared vectors: this runtime must reproduce them, as every SDK must."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edge import make_vectors
from edge.encoder import OnnxEncoder
from edge.make_vectors import Case
from edge.names import EdgeReason
from edge.runtime import Clock, Edge
from schemas.api import PromptEmbedding
from schemas.graphs import PROMPT_ENCODER

FIXTURES = Path(__file__).parent.parent / "fixtures"
VECTORS = make_vectors.read()


def test_they_are_of_the_fixture_release(bundle) -> None:
    assert VECTORS.release == bundle.release, "regenerate them: ./beforehand edge vectors --help"


def test_they_cover_the_histories_that_broke_others(bundle) -> None:
    given = {len(case.events) for case in VECTORS.cases}
    assert given >= {0, 1, bundle.sizes.local_events, bundle.sizes.local_events + 1}
    assert any(case.num_unknown for case in VECTORS.cases)
    assert max(case.num_unknown for case in VECTORS.cases if not case.used) > 0


@pytest.mark.parametrize("case", VECTORS.cases, ids=lambda case: case.name)
def test_the_runtime_reproduces_them(bundle, case: Case) -> None:
    edge = Edge(bundle, consent=True, clock=Clock(now_ms=lambda: case.now_ms))
    edge.set_user("vector-user", case.bucket)
    for event in case.events:
        edge.track(event)
    prompt = edge.prompt(60_000.0)
    edge.close()
    assert isinstance(prompt, PromptEmbedding), prompt
    rows = np.frombuffer(prompt.rows, "<f4").reshape(prompt.num_rows, -1)
    assert np.abs(rows - np.array(case.prompt)).max() <= VECTORS.tolerance
    assert edge.events[EdgeReason.UNKNOWN_ITEM] == case.num_unknown


@pytest.mark.parametrize("case", VECTORS.cases, ids=lambda case: case.name)
def test_their_inputs_follow_from_the_events(bundle, case: Case) -> None:
    by_id = {}
    for event in case.events:
        by_id.setdefault(event.event_id, event)
    used = [by_id[event_id] for event_id in case.used]
    padding = bundle.sizes.local_events - len(used)
    assert case.codes[:padding] == [[-1] * bundle.sizes.levels] * padding
    assert case.codes[padding:] == [bundle.codes(event.item_id).tolist() for event in used]
    assert case.kind == [0] * padding + [event.kind.number for event in used]
    ages = [np.log1p(max(0, case.now_ms - event.at) / 3_600_000) for event in used]
    assert case.age == pytest.approx([0.0] * padding + ages, abs=1e-6)
    assert case.graph_bucket == bundle.known_bucket(case.bucket)


def test_each_tells_the_graph_something(bundle) -> None:
    """Two cases with different inputs must not have the same answer: then they would test nothing."""
    encoded = [case for case in VECTORS.cases if case.used]
    answers = {tuple(np.round(np.array(case.prompt).ravel(), 6)) for case in encoded}
    inputs = {str((case.graph_bucket, case.clock, case.codes, case.kind, case.age)) for case in encoded}
    assert len(answers) == len(inputs) > 5


def test_making_them_again_gives_the_same(bundle, parts) -> None:
    made = make_vectors.prompt_vectors(bundle, VECTORS.bundle, parts.item_ids)
    assert [case.name for case in made.cases] == [case.name for case in VECTORS.cases]
    for new, old in zip(made.cases, VECTORS.cases, strict=True):
        assert (new.events, new.codes, new.used) == (old.events, old.codes, old.used)
        assert np.abs(np.array(new.prompt) - np.array(old.prompt)).max() <= VECTORS.tolerance


def test_the_release_s_graph_gives_what_torch_gives(parts) -> None:
    """``expected.json`` is what the offline tier computed for the same inputs; padded rows among them."""
    expected = json.loads((FIXTURES / "expected.json").read_bytes())[PROMPT_ENCODER]
    float_names = {"clock", "age"}
    feeds = {
        name: np.array(values, np.float32 if name in float_names else np.int64)
        for name, values in expected["inputs"].items()
    }
    encoder = OnnxEncoder(parts.graph)
    answer = np.array(expected["outputs"]["prompt"])
    assert np.abs(encoder.run(feeds, encoder.switch()) - answer).max() <= VECTORS.tolerance
    for row in range(len(answer)):
        alone = {name: values[row : row + 1] for name, values in feeds.items()}
        assert np.abs(encoder.run(alone, encoder.switch())[0] - answer[row]).max() <= VECTORS.tolerance
