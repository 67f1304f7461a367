"""The own lane: a crowd in one never holds up the other."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_values import NOW_MS, long, make_state
from test_online_decoder import faked
from test_online_service import Shelf

from online.deadline import Deadline
from online.lanes import Lanes
from online.service import Recall
from schemas.api import MAX_K, RecallRequest
from schemas.names import Reason, Rung
from schemas.plan import load_plan

AS_WRITTEN = load_plan()
ONLINE = msgspec.structs.replace(AS_WRITTEN.online, lane_value=10.0)
PLAN = msgspec.structs.replace(AS_WRITTEN, online=ONLINE)
SMALL = RecallRequest(user_id="u1", k=5)
VALUABLE = RecallRequest(user_id="u1", k=5, value=10.0)


@given(st.integers(1, MAX_K), st.floats(0, 20), st.booleans())
def test_who_has_the_own_lane(k, value, bulk):
    lanes = Lanes(ONLINE)
    apart = lanes.of(RecallRequest(user_id="u", k=k, value=value), bulk=bulk) is lanes.own
    assert apart == (bulk or k >= ONLINE.lane_k or value >= 10.0)


def test_a_plan_without_lane_has_one_line():
    lanes = Lanes(msgspec.structs.replace(ONLINE, lane_workers=0))
    assert lanes.of(VALUABLE, bulk=True) is lanes.small
    assert lanes.all == (lanes.small,)


@pytest.fixture
def recall(releases, release):
    made = Recall(PLAN, Shelf(make_state(release)), releases, now_ms=lambda: NOW_MS)
    yield made
    made.lanes.close()


@pytest.mark.parametrize(
    ("crowded", "free", "bulk"), [("own", SMALL, False), ("small", VALUABLE, False), ("small", SMALL, True)]
)
def test_a_crowd_in_one_lane_does_not_hold_up_the_other(recall, release, crowded, free, bulk):
    stuck = faked(release)
    lane = getattr(recall.lanes, crowded)
    other = recall.lanes.small if crowded == "own" else recall.lanes.own

    async def run() -> None:
        ends = Deadline(20.0)
        crowd = [asyncio.create_task(lane.decode(stuck, {}, ends, 100.0)) for _ in range(5)]
        await asyncio.to_thread(stuck.decoder.running.wait, 10)
        response = await recall.answer(free, long(), bulk=bulk)
        assert response.rung is Rung.GENERATE
        assert lane.in_flight == 5
        assert other.in_flight == 0
        for task in crowd:
            task.cancel()
        await asyncio.wait(crowd)

    asyncio.run(run())


def test_what_a_lane_learns_is_its_own(recall):
    recall.lanes.own.usual.s = 100.0

    async def run():
        return await recall.answer(VALUABLE, Deadline(2.0)), await recall.answer(SMALL, long())

    valuable, small = asyncio.run(run())
    assert valuable.skipped["generate"] is Reason.NO_TIME
    assert small.rung is Rung.GENERATE
    assert recall.lanes.own.usual.s < 100.0, "eased, so that it is tried again"
