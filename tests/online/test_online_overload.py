"""More than can be done: capacity goes by value, nobody waits in vain, and Redis is not blamed for it."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time

import numpy as np
import pytest
from online_proxy import proxied
from online_values import LONG_S, NOW_MS, long, make_state
from test_online_decoder import faked, feeds_of
from test_online_service import Shelf

from online.breaker import SPAN_S
from online.deadline import Deadline
from online.decoder import Decoder, together
from online.door import KEPT, Door
from online.line import MAX_WAITING
from online.releases import Loaded
from online.service import Recall
from online.store import Store
from schemas.api import RecallRequest
from schemas.names import Reason, Rung, State


class Gate:
    """A graph whose runs wait for the test, and that remembers who ran with whom."""

    faults = 0

    def __init__(self) -> None:
        self.open = threading.Event()
        self.running = threading.Event()
        self.batches: list[list[int]] = []

    def run(self, feed, stop=None):
        self.batches.append(feed["intent"][:, 0].tolist())
        self.running.set()
        while not self.open.wait(0.001):
            if stop.called:
                raise RuntimeError("terminated")
        count = len(feed["intent"])
        return [np.tile([1, 2, -1], (count, 1)), np.ones((count, 3), np.float32)]


@pytest.fixture
def decoder():
    decoder = Decoder(workers=1)
    yield decoder
    decoder.close()


def feed(number: int) -> dict:
    return {"intent": np.array([[number]])}


async def crowd(decoder, release, jobs):
    """Start a run that blocks, put ``jobs`` (number, value, budget) behind it, open the gate."""
    gate: Gate = release.decoder
    first = asyncio.create_task(decoder.decode(release, feed(-1), long()))
    await asyncio.to_thread(gate.running.wait, 5)
    tasks = [asyncio.create_task(decoder.decode(release, feed(n), Deadline(s), v)) for n, v, s in jobs]
    for _ in range(3):
        await asyncio.sleep(0)
    gate.open.set()
    return await asyncio.gather(first, *tasks)


def test_when_somebody_cant_be_in_time_the_most_valuable_run_first(decoder, release, monkeypatch):
    monkeypatch.setattr("online.line.PRESSED_S", LONG_S)
    gated = dataclasses.replace(release, decoder=Gate())
    values = [3.0, 1.0, 9.0, 1.0, 7.0]
    jobs = [(n, v, LONG_S) for n, v in enumerate(values)]
    first, hopeless, *done = asyncio.run(crowd(decoder, gated, [(99, 0.5, 0.0), *jobs]))
    assert hopeless.reason is not Reason.OK
    assert {d.reason for d in (first, *done)} == {Reason.OK}
    order = [n for batch in gated.decoder.batches[1:] for n in batch]
    assert order == [2, 4, 0, 1, 3]


def test_while_all_can_be_in_time_nobody_waits_for_being_worth_little(decoder, release):
    gated = dataclasses.replace(release, decoder=Gate())
    jobs = [(0, 9.0, LONG_S + 2), (1, 1.0, LONG_S), (2, 5.0, LONG_S + 1), (3, 0.1, LONG_S - 1)]
    done = asyncio.run(crowd(decoder, gated, jobs))
    assert {d.reason for d in done} == {Reason.OK}
    order = [n for batch in gated.decoder.batches[1:] for n in batch]
    assert order == [3, 1, 2, 0]


def test_those_who_wait_share_a_run_and_nobody_waits_for_company(decoder, release):
    gated = dataclasses.replace(release, decoder=Gate())
    decoder.curve.took(1, 0.0)
    asyncio.run(crowd(decoder, gated, [(n, 1.0, LONG_S) for n in range(5)]))
    assert gated.decoder.batches[0] == [-1]
    assert max(len(batch) for batch in gated.decoder.batches) > 1


def test_the_least_valuable_are_told_at_once_when_there_is_no_time_for_all(decoder, release):
    gated = dataclasses.replace(release, decoder=Gate())
    for _ in range(300):
        decoder.curve.took(1, 10.0)
        decoder.curve.took(2, 30.0)
        decoder.curve.took(3, 60.0)
        decoder.curve.took(4, 90.0)
    jobs = [(0, 5.0, LONG_S), (1, 1.0, LONG_S), (2, 9.0, LONG_S), (3, 2.0, LONG_S)]
    first, *done = asyncio.run(crowd(decoder, gated, jobs))
    assert first.reason is Reason.OK
    # 30 s for runs of 10 s, one of which is under way: there is time for one more, perhaps two.
    assert [d.reason for d in done][1::2] == [Reason.NO_CAPACITY] * 2
    assert done[2].reason is Reason.OK


def test_what_would_come_back_to_a_busy_loop_too_late_is_not_run(release):
    """A run's outcome waits for the loop's turn, and the request for the next. Without a crowd it was a stall."""
    gated = dataclasses.replace(release, decoder=Gate())
    decoder = Decoder(workers=1, turn_s=lambda: 2.0)
    decoder.usual.s = 0.001
    jobs = [(0, 1.0, 3.9), (1, 1.0, LONG_S)]
    first, lost, done = asyncio.run(crowd(decoder, gated, jobs))
    assert (first.reason, done.reason) == (Reason.OK, Reason.OK)
    assert lost.reason is Reason.NO_CAPACITY
    assert asyncio.run(decoder.decode(gated, feed(2), Deadline(3.9))).reason is Reason.OK
    decoder.close()


def test_the_decoders_reserve_what_the_door_measures(plan, releases, release):
    recall = Recall(plan, Shelf(make_state(release)), releases)
    for seconds in (1.0, 3.0, 1.0):
        recall.door.turns.took(seconds)
    assert [lane.turn_s() for lane in recall.lanes.all] == [3.0] * len(recall.lanes.all)


def test_the_line_is_bounded(decoder, release):
    gated = dataclasses.replace(release, decoder=Gate())
    jobs = [(n, float(n), LONG_S) for n in range(MAX_WAITING + 6)]
    _, *done = asyncio.run(crowd(decoder, gated, jobs))
    assert [n for n, d in enumerate(done) if d.reason is Reason.NO_CAPACITY] == list(range(6))


def test_room_is_by_value(decoder, release):
    gated = dataclasses.replace(release, decoder=Gate())

    async def run():
        assert decoder.room(0.0, Deadline(1e-9)) is Reason.OK, "an idle decoder leaves the time to the ladder"
        first = asyncio.create_task(decoder.decode(gated, feed(-1), long()))
        await asyncio.to_thread(gated.decoder.running.wait, 5)
        others = [asyncio.create_task(decoder.decode(gated, feed(n), long(), 5.0)) for n in range(4)]
        await asyncio.sleep(0)
        decoder.usual.s = 10.0
        rooms = [decoder.room(value, Deadline(25.0)) for value in (1.0, 9.0)]
        gated.decoder.open.set()
        await asyncio.gather(first, *others)
        return rooms

    assert asyncio.run(run()) == [Reason.NO_CAPACITY, Reason.OK]


def test_a_batch_gives_each_its_own_answer(release, expected):
    feeds = feeds_of(expected)
    feeds[0]["exclude"] = np.full((1, 16), -1, np.int64)
    alone = [release.decoder.run(each)[:2] for each in feeds]
    items, scores = release.decoder.run(together(feeds))[:2]
    assert len(items) == len(feeds) > 1
    for row, (item, score) in enumerate(alone):
        assert items[row].tolist() == item[0].tolist()
        filled = item[0] >= 0
        assert scores[row][filled] == pytest.approx(score[0][filled], abs=1e-5)


def test_one_who_leaves_does_not_stop_the_others(decoder, release):
    gated = dataclasses.replace(release, decoder=Gate())
    decoder.curve.took(1, 0.0)

    async def run():
        first = asyncio.create_task(decoder.decode(gated, feed(-1), long()))
        await asyncio.to_thread(gated.decoder.running.wait, 5)
        pair = [asyncio.create_task(decoder.decode(gated, feed(n), long())) for n in range(2)]
        await asyncio.sleep(0)
        gated.decoder.running.clear()
        gated.decoder.open.set()
        await first
        await asyncio.to_thread(gated.decoder.running.wait, 5)
        pair[0].cancel()
        return await pair[1]

    assert asyncio.run(run()).reason is Reason.OK


def test_a_fault_is_forgotten_with_what_was_learnt(decoder, release):
    for _ in range(5):
        assert asyncio.run(decoder.decode(faked(release, scores=[1.0, 0.5, 0.0]), {}, long())).reason is Reason.OK
    assert decoder.curve.size() > 1
    failed = asyncio.run(decoder.decode(faked(release, error=RuntimeError("no kernel")), {}, long()))
    assert failed.reason is Reason.DECODE_FAILED
    assert decoder.curve.size() == 1


def test_shed_at_the_door_the_answer_comes_from_memory(plan, releases, release):
    releases.loaded = Loaded(release)
    shelf = Shelf(make_state(release))
    recall = Recall(plan, shelf, releases, now_ms=lambda: NOW_MS)
    recall.door = Door(lambda: 0.0)
    for _ in range(KEPT):
        recall.door.turns.took(1e6)
    response = asyncio.run(recall.answer(RecallRequest(user_id="u1", k=5), long()))
    recall.decoder.close()
    assert response.rung is Rung.COHORT
    assert response.skipped == {"generate": Reason.NO_CAPACITY, "nearline": Reason.NO_CAPACITY}
    assert response.assets["intent_state"].state is State.UNAVAILABLE
    assert response.assets["intent_state"].reason is Reason.NO_CAPACITY
    assert len(response.items) == 5


def test_a_busy_process_does_not_open_the_circuit(stored, redis_server):
    """The reply is there in time; this process comes to read it too late."""

    async def run():
        async with proxied(redis_server) as proxy:
            store = Store(f"redis://127.0.0.1:{redis_server}/0", timeout_s=0.02, cache_bytes=0)
            await store.find("u1", long())
            reasons = []
            for _ in range(8):
                look = asyncio.create_task(store.find("u1", long()))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                time.sleep(SPAN_S / 2)
                reasons.append((await look).fault)
            healthy = store.circuit_open
            await store.close()
            mute = Store(proxy.url, timeout_s=0.02, cache_bytes=0)
            proxy.mute = True
            for _ in range(8):
                await mute.find("u1", long())
                await asyncio.sleep(SPAN_S / 4)
            opened = mute.circuit_open
            await mute.close()
            return reasons, healthy, opened

    reasons, healthy, opened = asyncio.run(run())
    assert (State.TIMED_OUT, Reason.STORE_TIMEOUT) in reasons, "the stall did not bite: the test proves nothing"
    assert healthy is False
    assert opened is True
