"""Two sessions, one of which may fail: who runs, and what is learnt of it. The accelerator is a fake: none is here."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import numpy as np
import pytest
from online_values import FIXTURES, KEY, long, until_true

from online import sessions
from online.decoder import Decoder
from online.graph import Graph, Stop
from online.release import load
from online.sessions import RETRY_S, STOPPED, Sessions, open_decoder
from schemas.errors import ReleaseError
from schemas.graphs import DECODER
from schemas.names import Reason


class Session:
    """Takes ``took_s`` of the test's clock; fails or hangs on demand."""

    faults = 0

    def __init__(self, clock, took_s: float, name: int) -> None:
        self.clock, self.took_s, self.name = clock, took_s, name
        self.error: Exception | None = None
        self.runs = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def run(self, feed, stop=None):
        self.runs += 1
        self.entered.set()
        assert self.gate.wait(20)
        self.clock.now += self.took_s
        if self.error is not None:
            raise self.error
        return [np.array([[self.name]]), np.ones((1, 1), np.float32)]

    def with_arrays(self, arrays):
        return Session(self.clock, self.took_s, self.name + len(arrays))


@pytest.fixture
def cpu(clock):
    return Session(clock, 0.004, 1)


@pytest.fixture
def gpu(clock):
    return Session(clock, 0.001, 2)


@pytest.fixture
def both(clock, cpu, gpu):
    return Sessions(cpu, gpu, lambda: clock.now)


def who(outputs) -> int:
    return int(outputs[0][0, 0])


def test_the_quicker_one_is_preferred_until_it_has_too_much_to_do(both, cpu, gpu):
    assert {who(both.run({})) for _ in range(3)} == {1, 2}, "each is tried once"
    assert [who(both.run({})) for _ in range(5)] == [2] * 5
    gpu.gate.clear()
    runs, before = gpu.runs, cpu.runs
    waiting = [threading.Thread(target=both.run, args=({},)) for _ in range(4)]
    for number, thread in enumerate(waiting, 1):
        thread.start()
        until_true(lambda number=number: gpu.runs == runs + number)
    assert who(both.run({})) == 1, "four runs of one millisecond are as long as one of four"
    assert cpu.runs == before + 1
    gpu.gate.set()
    for thread in waiting:
        thread.join(10)


def test_a_fault_costs_nobody_an_answer_and_it_is_tried_again_later(both, clock, cpu, gpu):
    for _ in range(3):
        both.run({})
    gpu.error = RuntimeError("device lost")
    runs = gpu.runs
    assert who(both.run({})) == 1, "the same run, done by the processor"
    assert both.faults == 1
    assert [who(both.run({})) for _ in range(5)] == [1] * 5
    assert gpu.runs == runs + 1, "nobody else met the fault"
    clock.now += RETRY_S
    gpu.error = None
    assert who(both.run({})) == 2
    assert both.faults == 1


def test_when_the_processor_fails_too_it_is_said(both, cpu, gpu):
    cpu.error = gpu.error = RuntimeError("nothing works")
    with pytest.raises(RuntimeError):
        both.run({})


def test_one_that_hangs_is_left_alone_and_one_that_was_stopped_is_not(both, cpu, gpu):
    both.run({})
    both.run({})
    gpu.error = RuntimeError("terminated")
    stop = Stop()
    stop()
    before = cpu.runs
    for number in range(STOPPED):
        assert both.faults == 0, number
        with pytest.raises(RuntimeError):
            both.run({}, stop)
    assert cpu.runs == before, "nobody waits for these any more"
    assert both.faults == 1
    assert who(both.run({})) == 1


def test_other_arrays_go_to_both(both):
    other = both.with_arrays({"a": np.zeros(1)})
    assert {who(other.run({})) for _ in range(3)} == {2, 3}
    assert {who(both.run({})) for _ in range(3)} == {1, 2}


def test_the_curve_is_learnt_anew_when_another_session_takes_over(both, gpu, release):
    decoder = Decoder(workers=1)
    try:
        ours = dataclasses.replace(release, decoder=both)
        for _ in range(3):
            assert asyncio.run(decoder.decode(ours, {}, long())).reason is Reason.OK
        decoder.curve.took(2, 0.0)  # as much as one alone, however fast the stand-in is
        assert decoder.curve.size() > 1
        before = decoder.curve.of(2)
        gpu.error = RuntimeError("device lost")
        assert asyncio.run(decoder.decode(ours, {}, long())).reason is Reason.OK, "the answer comes all the same"
        assert decoder.curve.of(2) == pytest.approx(2 * decoder.curve.of(1))
        assert decoder.curve.of(2) != before
    finally:
        decoder.close()


def test_without_an_accelerator_or_with_one_that_does_not_start_the_processor_decodes(release, monkeypatch):
    path = release.folder / DECODER
    assert isinstance(release.decoder, Graph)

    class Providers:
        @staticmethod
        def get_available_providers():
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    def graph(path, arrays, *provider):
        if provider:
            raise ReleaseError("no device")
        return Graph(path, arrays)

    monkeypatch.setattr(sessions, "ort", Providers)
    monkeypatch.setattr(sessions, "Graph", graph)
    assert isinstance(open_decoder(path, {}), Graph)
    monkeypatch.setattr(sessions, "Graph", lambda path, arrays, *_provider: Graph(path, arrays))
    assert isinstance(open_decoder(path, {}), Sessions)


def test_a_release_on_two_sessions_answers_the_same(release, monkeypatch):
    """The real graph twice: loaded, warmed, with other arrays."""

    def open_two(path, arrays):
        return Sessions(Graph(path, arrays), Graph(path, arrays))

    monkeypatch.setattr("online.release.open_decoder", open_two)
    twice = load(FIXTURES / "release", KEY)
    model = release.model
    feed = release.decoder_feed(
        release.arrays["intent_defaults"][:1],
        release.arrays["prompt_defaults"][:1],
        (np.full((1, model.neighbours), -1, np.int64), np.zeros((1, model.neighbours), np.float32)),
        (np.full((1, 1), -1, np.int64),) * 2,
    )
    for _ in range(3):
        for ours, theirs in zip(twice.decoder.run(feed), release.decoder.run(feed), strict=True):
            assert ours.tolist() == theirs.tolist()
    again = load(FIXTURES / "release", KEY, beside=[twice])
    assert isinstance(again.decoder, Sessions)
