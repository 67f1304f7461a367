"""Two instances share the users: each at one of them, each state cached once, and a loss moves its own users only."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_values import NOW_MS, make_state, put
from test_online_store import until

from online.affinity import AVOID_S, HEADER, Instances, ranked, token
from online.app import App
from online.client import AsyncRecallClient, RecallUnavailableError
from online.service import Recall
from online.store import Store

USERS = [f"user {n}" for n in range(40)]
A, B = "http://a:1", "http://b:2"


@given(st.text(min_size=1), st.lists(st.text(min_size=1), min_size=2, unique=True), st.randoms())
def test_the_order_given_does_not_matter_and_a_loss_moves_nobody_else(user, instances, random):
    order = ranked(user, instances)
    shuffled = random.sample(instances, len(instances))
    assert ranked(user, shuffled) == order
    lost = random.choice(instances)
    assert ranked(user, [i for i in instances if i != lost]) == [i for i in order if i != lost]


def test_the_shares_are_even_and_so_is_what_a_lost_one_leaves():
    instances = [f"http://10.0.0.{n}:8700" for n in range(4)]
    orders = [ranked(f"u{n}", instances) for n in range(8000)]
    firsts = Counter(order[0] for order in orders)
    assert all(abs(count - 2000) < 250 for count in firsts.values())
    heirs = Counter(order[1] for order in orders if order[0] == instances[0])
    assert all(abs(count - firsts[instances[0]] / 3) < 120 for count in heirs.values())


def test_what_failed_comes_last_for_a_while(clock):
    instances = Instances([A, B + "/"], clock)
    first, second = instances.of("u")
    instances.failed(first)
    assert instances.of("u") == [second, first]
    instances.failed(second)
    assert sorted(instances.of("u")) == [A, B]
    clock.now += AVOID_S
    assert instances.of("u") == [first, second]


def test_a_token_tells_no_id():
    assert token("u1") == token("u1") != token("u2")
    assert len(token("🧼" * 9)) == 16


class Network(httpx.AsyncBaseTransport):
    """Instances by host; some may be down."""

    def __init__(self, apps: dict[str, App]) -> None:
        self.instances = {host: httpx.ASGITransport(app=app) for host, app in apps.items()}
        self.down: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host in self.down:
            raise httpx.ConnectError("refused", request=request)
        self.asked.append((request.headers[HEADER], request.url.host))
        return await self.instances[request.url.host].handle_async_request(request)


def test_two_instances_cache_each_user_once_and_a_loss_moves_its_share(plan, releases, release, stored, redis_url):
    for user in USERS:
        put(stored, make_state(release, user))

    async def run() -> None:
        stores = {host: Store(redis_url, timeout_s=2.0, cache_bytes=10**7) for host in "ab"}
        recalls = {h: Recall(plan, s, releases, now_ms=lambda: NOW_MS) for h, s in stores.items()}
        network = Network({host: App(recall, 5.0) for host, recall in recalls.items()})
        for store in stores.values():
            await store.start()
        await until(lambda: all(store.cache.live for store in stores.values()))
        async with AsyncRecallClient([A, B], timeout_s=20, transport=network) as client:
            for user in 2 * USERS:
                assert (await client.recall(user, k=3)).user_id == user
            held = {h: {u for u in USERS if s.cache.fresh(u)} for h, s in stores.items()}
            assert held["a"] | held["b"] == {*USERS}
            assert not held["a"] & held["b"]
            assert min(map(len, held.values())) > 5
            assert len({*network.asked}) == len(USERS)
            network.down = {"a"}
            network.asked.clear()
            for user in USERS:
                assert (await client.recall(user, k=3)).items
            assert {host for _, host in network.asked} == {"b"}
            assert {u for u in USERS if stores["b"].cache.fresh(u)} == {*USERS}
            assert {u for u in USERS if stores["a"].cache.fresh(u)} == held["a"]
            network.down = {"a", "b"}
            with pytest.raises(RecallUnavailableError):
                await client.recall("user 1")
        for host in "ab":
            await stores[host].close()
            recalls[host].decoder.close()

    asyncio.run(run())


def test_an_address_is_needed():
    with pytest.raises(RecallUnavailableError):
        AsyncRecallClient([])
