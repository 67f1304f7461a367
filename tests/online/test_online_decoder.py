"""Decoding: the same numbers as everywhere else, alone or in a crowd, and never past the deadline."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
import weakref

import numpy as np
import pytest
from online_values import long, make_state

from online import judge
from online.deadline import Deadline
from online.decoder import Decoder, together
from online.graph import ORT_ERRORS, Stop
from online.limits import limits_of
from schemas.api import RecallRequest
from schemas.names import Reason

INTEGERS = ("neighbour_item", "exclude", "allow")


class FakeGraph:
    """Stands in for a session: gives ``scores``, or works until it is stopped, as a run over many operators does."""

    faults = 0

    def __init__(self, scores=None, error: Exception | None = None) -> None:
        self.scores = scores
        self.error = error
        self.runs = 0
        self.running = threading.Event()

    def run(self, feed, stop=None):
        self.runs += 1
        self.running.set()
        if self.error:
            raise self.error
        while self.scores is None:
            time.sleep(0.001)
            if stop.called:
                raise RuntimeError("terminated")
        return [np.array([[1, 2, -1]]), np.array([self.scores], np.float32)]


def faked(release, **how):
    return dataclasses.replace(release, decoder=FakeGraph(**how))


def feeds_of(expected) -> list[dict]:
    inputs = expected["decoder.onnx"]["inputs"]
    count = len(inputs["intent"])
    return [
        {
            name: np.array([values[i]], np.int64 if name in INTEGERS else np.float32)
            for name, values in inputs.items()
            if name != "weights"
        }
        for i in range(count)
    ]


@pytest.fixture
def decoder():
    decoder = Decoder(workers=1)
    yield decoder
    decoder.close()


def test_it_gives_the_numbers_of_training(release, expected, decoder):
    outputs = expected["decoder.onnx"]["outputs"]
    for row, feed in enumerate(feeds_of(expected)):
        decoded = asyncio.run(decoder.decode(release, feed, long()))
        filled = [item for item in outputs["item"][row] if item >= 0]
        assert decoded.reason is Reason.OK
        assert decoded.items.tolist() == filled
        assert decoded.scores == pytest.approx(outputs["score"][row][: len(filled)], abs=1e-4)


def test_alone_or_in_a_crowd_the_answer_is_the_same(release):
    decoder = Decoder(workers=4)
    request = RecallRequest(user_id="u")
    limits = limits_of(request, release)
    feeds = []
    for number in range(50):
        state = make_state(release, f"user {number}")
        rows, _ = judge.state_rows(state, release.model)
        near = judge.neighbours(state, release.model)
        prompt = release.arrays["prompt_defaults"][state.bucket : state.bucket + 1]
        feeds.append(release.decoder_feed(rows, prompt, near, (limits.exclude, limits.allow)))
    alone = [release.decoder.run(feed) for feed in feeds]

    async def crowd():
        return await asyncio.gather(*(decoder.decode(release, feed, long()) for feed in feeds))

    for (items, scores), decoded in zip(alone, asyncio.run(crowd()), strict=True):
        assert decoded.items.tolist() == [item for item in items[0].tolist() if item >= 0]
        assert decoded.scores.tolist() == scores[0][: len(decoded.scores)].tolist()
    decoder.close()


def test_a_run_past_the_deadline_is_stopped(release, decoder):
    slow = faked(release)
    decoded = asyncio.run(decoder.decode(slow, {}, Deadline(3.0)))
    assert decoded.reason is Reason.DECODE_TIMEOUT
    decoder.close()  # returns only when the thread has ended, so the run was stopped
    assert slow.decoder.runs == 1


def test_onnxruntime_heeds_the_stop(release, expected):
    stop = Stop()
    stop()
    with pytest.raises(ORT_ERRORS):
        release.decoder.run(feeds_of(expected)[0], stop)


def test_what_a_thread_ran_before_never_stands_in_for_what_is_missing(release, expected):
    feed = feeds_of(expected)[0]
    before = release.decoder.run(feed)
    for wrong in ({name: feed[name] for name in list(feed)[1:]}, feed | {"surplus": feed["intent"]}, {}):
        with pytest.raises(ORT_ERRORS, match="missing or too many"):
            release.decoder.run(wrong)
    release.decoder.run(together([feed, feed, feed]))  # what a run gave is nobody else's to write into
    assert all((was == now).all() for was, now in zip(before, release.decoder.run(feed), strict=True))


def test_what_waited_too_long_is_not_run(release, decoder):
    slow, late = faked(release), faked(release, scores=[1.0, 0.5, 0.0])

    async def run():
        first = asyncio.create_task(decoder.decode(slow, {}, long()))
        await asyncio.to_thread(slow.decoder.running.wait, 5)
        second = await decoder.decode(late, {}, Deadline(0.01))
        first.cancel()
        await asyncio.wait([first])
        while decoder.in_flight:
            await asyncio.sleep(0.001)
        return second

    assert asyncio.run(run()).reason in (Reason.DECODE_TIMEOUT, Reason.NO_CAPACITY, Reason.NO_TIME)
    assert late.decoder.runs == 0


def test_one_bad_spell_does_not_rule_it_out_for_good(release, decoder):
    """After a stall the usual time is about what a request has: nobody is run, and yet it must be learnt anew."""
    budget_s, quick = 0.5, faked(release, scores=[1.0, 0.5, 0.0])
    decoder.usual.s = budget_s - 0.0005

    async def run():
        return [(await decoder.decode(quick, {}, Deadline(budget_s))).reason for _ in range(200)]

    reasons = asyncio.run(run())
    assert reasons[0] is Reason.NO_TIME
    assert Reason.OK in reasons


def test_a_thread_that_waits_keeps_no_release(release, decoder):
    """One that was unloaded would be taken down by the next job's run, in that job's time."""
    old = faked(release, scores=[1.0, 0.5, 0.0])
    graph = weakref.ref(old.decoder)
    assert asyncio.run(decoder.decode(old, {}, long())).reason is Reason.OK
    del old
    ends = time.monotonic() + 20
    while graph() is not None:
        assert time.monotonic() < ends, "the thread keeps it"
        time.sleep(0.005)


def test_what_is_running_is_counted(release, decoder):
    slow = faked(release)

    async def run():
        task = asyncio.create_task(decoder.decode(slow, {}, long()))
        await asyncio.to_thread(slow.decoder.running.wait, 5)
        during = decoder.in_flight
        task.cancel()
        await asyncio.wait([task])
        while decoder.in_flight:
            await asyncio.sleep(0.001)
        return during

    assert asyncio.run(run()) == 1


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"scores": [1.0, float("nan"), 0.0]}, Reason.NOT_FINITE),
        ({"scores": [1.0, 0.5, float("nan")]}, Reason.OK),  # the padding's score means nothing
        ({"error": RuntimeError("bad kernel")}, Reason.DECODE_FAILED),
        ({"error": ORT_ERRORS[0]("bad input")}, Reason.DECODE_FAILED),
    ],
)
def test_what_a_graph_gives_is_checked(release, decoder, how, reason):
    assert asyncio.run(decoder.decode(faked(release, **how), {}, long())).reason is reason
