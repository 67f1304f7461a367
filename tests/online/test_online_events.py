"""Events over HTTP, checked one by one, on their way to a broker that misbehaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import httpx
import msgspec
import pytest
from online_values import NOW_MS, until_true
from test_online_service import Shelf, make  # noqa: F401 - a fixture

from online.app import App
from online.events import MAX_EVENTS, EventsRoute
from online.kafka_producer import kafka_outbox
from online.outbox import OVERHEAD_BYTES, Outbox
from schemas.errors import StoreError
from schemas.event import decode_event
from schemas.topics import EVENTS_TOPIC


class Broker:
    """A producer that takes what ``up`` allows, and gives up records on demand."""

    def __init__(self) -> None:
        self.up = threading.Event()
        self.up.set()
        self.records: list[tuple[str, bytes, bytes]] = []
        self.give_up = False
        self.hold = False
        self.held: list[Callable[[bool], None]] = []
        self.tries = 0
        self.closed = False

    def connect(self):
        self.tries += 1
        if not self.up.is_set():
            raise StoreError("no broker answers")
        return self

    def send(self, topic, key, value, settled):
        self.tries += 1
        if not self.up.is_set():
            raise StoreError("Kafka takes nothing")
        if self.hold:
            self.held.append(settled)
        elif self.give_up:
            settled(False)
        else:
            self.records.append((topic, key, value))
            settled(True)

    def close(self, timeout_s):
        self.closed = True


@pytest.fixture
def broker(monkeypatch):
    monkeypatch.setattr("online.outbox.RETRY_S", 0.01)
    return Broker()


@pytest.fixture
def outbox(broker):
    outbox = Outbox(broker.connect, max_bytes=5 * (OVERHEAD_BYTES + 400))
    yield outbox
    outbox.close()


def event(number: int = 0, **changes) -> dict:
    fields = {"event_id": f"e{number}", "user_id": "u1", "item_id": "i1", "kind": "click", "at": NOW_MS}
    return fields | changes


@pytest.fixture
def post(make, releases, outbox):  # noqa: F811
    recall = make(Shelf())
    route = EventsRoute(outbox, lambda: releases.loaded.ids, recall.metrics.registry)

    def send(body, read=False, **headers):
        import asyncio

        async def run():
            transport = httpx.ASGITransport(app=App(recall, 5.0, events=route))
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                if read:
                    return (await client.get("/metrics")).text
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                return await client.post("/v1/events", content=content, headers=headers)

        return asyncio.run(run())

    return send


def test_good_events_reach_the_topic_in_order(post, outbox, broker):
    outbox.start()
    response = post([event(1), event(2, user_id="é🧼", extra="ignored")])
    assert (response.status_code, response.json()) == (202, {"accepted": 2, "no_room": 0, "refused": []})
    until_true(lambda: outbox.num_bytes == 0)
    assert [record[:2] for record in broker.records] == [(EVENTS_TOPIC, b"u1"), (EVENTS_TOPIC, "é🧼".encode())]
    assert [decode_event(record[2]).event_id for record in broker.records] == ["e1", "e2"]


def test_a_bad_event_costs_itself_only(post, outbox):
    bad = [event(1, at=NOW_MS // 1000), "no event", event(2), event(3, kind="look"), event(4, item_id=""), [[]]]
    body = post(bad).json()
    assert body["accepted"] == 1
    assert [refused["place"] for refused in body["refused"]] == [0, 1, 3, 4, 5]
    assert "seconds" in body["refused"][0]["mend"]
    assert all(refused["error"] and refused["mend"] for refused in body["refused"])
    assert "beforehand_events_refused_total 5.0" in post(b"", read=True)


@pytest.mark.parametrize(
    ("body", "status"), [(b"", 400), (b"[{", 400), (b"{}", 422), (b"[" * 100_000, 400), ([{}] * (MAX_EVENTS + 1), 422)]
)
def test_what_is_no_list_is_refused(post, body, status):
    response = post(body)
    assert response.status_code == status
    assert response.json()["mend"]


def test_only_json_is_taken(post):
    assert post(msgspec.msgpack.encode([event()]), **{"content-type": "application/msgpack"}).status_code == 415


def test_while_kafka_is_gone_events_wait_within_the_bound(post, outbox, broker):
    broker.up.clear()
    outbox.start()
    first = post([event(n) for n in range(20)])
    assert first.status_code == 503
    kept = first.json()["accepted"]
    assert 0 < kept < 20
    assert first.json()["no_room"] == 20 - kept
    assert outbox.num_bytes <= 5 * (OVERHEAD_BYTES + 400)
    assert f"beforehand_events_no_room_total {20.0 - kept}" in post(b"", read=True)
    broker.up.set()
    until_true(lambda: len(broker.records) == kept)
    assert post([event(n) for n in range(kept, kept + 2)]).status_code == 202
    until_true(lambda: len(broker.records) == kept + 2)
    assert [decode_event(r[2]).event_id for r in broker.records] == [f"e{n}" for n in range(kept + 2)]


def test_a_broker_that_fails_while_sending_loses_nothing(outbox, broker):
    outbox.start()
    outbox.put(b"u", b"1")
    until_true(lambda: len(broker.records) == 1)
    broker.up.clear()
    outbox.put(b"u", b"2")
    tries = broker.tries
    until_true(lambda: broker.tries > tries + 2)
    broker.up.set()
    until_true(lambda: len(broker.records) == 2)
    assert [record[2] for record in broker.records] == [b"1", b"2"]


def test_what_the_producer_gives_up_is_sent_again(outbox, broker):
    broker.give_up = True
    outbox.start()
    for value in (b"1", b"2"):
        outbox.put(b"u", value)
    until_true(lambda: broker.tries > 4)
    assert outbox.num_bytes == 2 * (OVERHEAD_BYTES + 2)
    broker.give_up = False
    until_true(lambda: outbox.num_bytes == 0)
    assert {record[2] for record in broker.records} == {b"1", b"2"}
    assert outbox.num_lost == 0


def test_what_is_not_confirmed_keeps_its_place_in_the_buffer(outbox, broker):
    """A producer that takes everything at once must not be the buffer that has no bound."""
    broker.hold = True
    outbox.start()
    size = OVERHEAD_BYTES + 400
    taken = [outbox.put(b"u", bytes(size - OVERHEAD_BYTES - 1)) for _ in range(8)]
    assert taken == [True] * 5 + [False] * 3
    until_true(lambda: len(broker.held) == 5)
    assert outbox.num_bytes == 5 * size
    broker.held[0](True)
    assert outbox.num_bytes == 4 * size
    assert outbox.put(b"u", b"")


def test_what_waits_and_what_is_not_confirmed_at_the_end_is_counted(outbox, broker):
    broker.hold = True
    outbox.start()
    outbox.put(b"u", b"1")
    until_true(lambda: len(broker.held) == 1)
    broker.up.clear()
    outbox.put(b"u", b"2")
    outbox.close()
    assert outbox.num_lost == 2
    assert broker.closed
    broker.held[0](True)  # too late to be known
    assert outbox.num_lost == 2
    assert not outbox.put(b"u", b"3")


def test_the_end_sends_what_waits(outbox, broker):
    for number in range(3):
        outbox.put(b"u", b"%d" % number)
    outbox.start()
    outbox.close()
    assert len(broker.records) == 3
    assert outbox.num_lost == 0


def test_a_click_without_a_context_is_its_impressions_doing_and_counts_once(post, release):
    known = {"rung": "generate", "release": release.id}
    post([event(1, kind="impression", context=known), event(2), event(2)])
    text = post(b"", read=True)
    assert f'beforehand_events_total{{kind="click",release="{release.id}",rung="generate"}} 1.0' in text


def test_clicks_are_counted_by_rung_and_release_and_by_nothing_else(post, release):
    known = {"rung": "generate", "release": release.id}
    made_up = {"rung": "u1's own", "release": "x"}
    others = [event(2, item_id="another", context=made_up), event(3, item_id="another")]
    post([event(1, kind="impression", context=known), *others])
    text = post(b"", read=True)
    assert f'beforehand_events_total{{kind="impression",release="{release.id}",rung="generate"}} 1.0' in text
    assert 'beforehand_events_total{kind="click",release="other",rung="other"} 2.0' in text
    assert "u1" not in text


def test_without_a_broker_it_says_so(make, releases):  # noqa: F811
    import asyncio

    assert kafka_outbox(None) is kafka_outbox("") is None
    recall = make(Shelf())
    app = App(recall, 5.0, events=EventsRoute(None, lambda: releases.loaded.ids, recall.metrics.registry))

    async def run():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service") as client:
            return await client.post("/v1/events", json=[event()])

    response = asyncio.run(run())
    assert response.status_code == 503
    assert "BEFOREHAND_KAFKA" in response.json()["mend"]
