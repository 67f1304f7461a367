"""The time limit, and an encoder that fails in every way."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edge.encoder import Attempt, OnnxEncoder, StoppedError, Worker
from edge.names import EdgeReason
from edge.runtime import Clock, Edge
from schemas.api import PromptEmbedding

NOW_MS = 1_772_359_500_123
PATIENT_MS = 60_000.0
SLOW = Path(__file__).parent / "slow_encoder.onnx"


@pytest.fixture
def edge_with(bundle, event):
    made: list[Edge] = []

    def make(load, **given) -> Edge:
        edge = Edge(bundle, consent=True, load=load, **given)
        edge.set_user("u1", 1)
        edge.track(event(1))
        made.append(edge)
        return edge

    yield make
    for edge in made:
        edge.close()


@pytest.mark.parametrize("graph", [b"", b"not a graph"])
def test_a_graph_that_does_not_load_is_not_loaded(edge_with, graph: bytes) -> None:
    edge = edge_with(lambda _graph: OnnxEncoder(graph))
    assert [edge.prompt(PATIENT_MS), edge.prompt(PATIENT_MS)] == [EdgeReason.NOT_LOADED] * 2


def test_an_encoder_that_fails_is_a_reason_and_the_next_prompt_works(edge_with, fake, zeros) -> None:
    turns: list[int] = []

    def fails_once(_feeds):
        turns.append(1)
        if len(turns) == 1:
            raise RuntimeError("broken")
        return zeros

    edge = edge_with(fake(fails_once))
    assert edge.prompt(PATIENT_MS) is EdgeReason.ENCODE_FAILED
    assert isinstance(edge.prompt(PATIENT_MS), PromptEmbedding)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_output_that_is_not_finite_is_refused(edge_with, fake, zeros, bad: float) -> None:
    zeros[0, -1, -1] = bad
    edge = edge_with(fake(lambda _feeds: zeros))
    assert edge.prompt(PATIENT_MS) is EdgeReason.NOT_FINITE
    assert edge.latest() is EdgeReason.NOT_MADE


def test_output_of_another_shape_is_refused(edge_with, fake, zeros) -> None:
    edge = edge_with(fake(lambda _feeds: zeros[:, :, :-1]))
    assert edge.prompt(PATIENT_MS) is EdgeReason.BAD_SHAPE


@pytest.mark.parametrize("limit_ms", [0.0, -1.0, float("nan")])
def test_a_limit_that_leaves_no_time_is_too_late(edge_with, fake, zeros, limit_ms: float) -> None:
    runs: list[object] = []
    edge = edge_with(fake(lambda _feeds: (runs.append(1), zeros)[1]))
    assert edge.prompt(limit_ms) is EdgeReason.TOO_LATE
    assert not runs


def test_no_limit_at_all_is_a_long_one(edge_with, fake, zeros) -> None:
    assert isinstance(edge_with(fake(lambda _feeds: zeros)).prompt(float("inf")), PromptEmbedding)


def test_a_result_that_comes_late_is_refused(edge_with, fake, zeros) -> None:
    now = SimpleNamespace(s=0.0)

    def late(_feeds):
        now.s += 0.021
        return zeros

    edge = edge_with(fake(late), clock=Clock(monotonic_s=lambda: now.s))
    edge.warm()
    assert edge._worker is not None
    edge._worker.encoder.result(60)  # else a stall while it loads would be NOT_LOADED
    assert edge.prompt(20.0) is EdgeReason.TOO_LATE
    assert edge.latest() is EdgeReason.NOT_MADE


def test_an_encoder_still_loading_is_not_waited_for_beyond_the_limit(edge_with, fake, zeros) -> None:
    may_load = threading.Event()

    def load(graph: bytes):
        may_load.wait(60)
        return fake(lambda _feeds: zeros)(graph)

    edge = edge_with(load)
    assert edge.prompt(500.0) is EdgeReason.NOT_LOADED
    may_load.set()
    assert isinstance(edge.prompt(PATIENT_MS), PromptEmbedding)


def test_a_real_run_is_stopped_at_the_limit_and_its_thread_is_free_again(edge_with) -> None:
    """The graph would run for minutes: that the next piece of work is done at all shows that the run was stopped."""
    edge = edge_with(lambda _graph: OnnxEncoder(SLOW.read_bytes()))
    edge.warm()
    assert edge._worker is not None
    edge._worker.encoder.result(60)
    assert edge.prompt(20.0) is EdgeReason.TOO_LATE
    assert edge._worker._pool.submit(lambda: "free").result(15) == "free"


def test_an_attempt_stopped_before_it_began_does_not_run(fake) -> None:
    runs: list[object] = []
    worker = Worker(lambda: fake(runs.append)(b""))
    attempt = Attempt(worker.encoder, {})
    attempt.stop()
    with pytest.raises(StoppedError):
        attempt()
    assert not runs
    worker.close()


def test_a_closed_runtime_starts_again(edge_with, fake, zeros) -> None:
    edge = edge_with(fake(lambda _feeds: zeros))
    assert isinstance(edge.prompt(PATIENT_MS), PromptEmbedding)
    edge.close()
    assert isinstance(edge.prompt(PATIENT_MS), PromptEmbedding)


def test_prompts_and_events_from_many_threads_keep_count(edge_with, fake, zeros, event) -> None:
    edge = edge_with(fake(lambda _feeds: zeros))

    def use() -> None:
        for number in range(50):
            edge.track(event(number))
            edge.prompt(PATIENT_MS)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert edge.prompts == {EdgeReason.OK: 200}
    assert edge.events == {EdgeReason.OK: 201}
