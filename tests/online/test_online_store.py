"""The store: one MGET, the cache in front, the circuit, against a real Redis."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from online_proxy import proxied
from online_values import long, make_candidates, make_state, put

from online.breaker import SPAN_S
from online.cache import Pair
from online.deadline import Deadline
from online.store import Store
from schemas.keys import INVALIDATION_CHANNEL, state_key
from schemas.names import Reason, State
from schemas.state import encode_candidates, encode_state


@asynccontextmanager
async def opened(url: str, *, timeout_s: float = 2.0, listening: bool = True):
    store = Store(url, timeout_s=timeout_s, cache_bytes=1_000_000)
    if listening:
        await store.start()
        await until(lambda: store.cache.live)
    try:
        yield store
    finally:
        await store.close()


async def until(condition, limit_s: float = 10.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


def test_one_round_trip_brings_both_values(stored, redis_url, release):
    state, listed = make_state(release), make_candidates(release)
    put(stored, state)
    put(stored, listed)

    async def run():
        async with opened(redis_url, listening=False) as store:
            return await store.find("u1", long()), await store.find("nobody", long())

    before = stored.info("commandstats").get("cmdstat_mget", {"calls": 0})["calls"]
    found, nothing = asyncio.run(run())
    assert stored.info("commandstats")["cmdstat_mget"]["calls"] == before + 2
    assert found.pair == Pair(encode_state(state, 1), encode_candidates(listed, 1))
    assert found.fault is None
    assert nothing.pair == Pair(None, None)


def test_odd_user_ids_share_no_key(stored, redis_url, release):
    ids = ["a:b", "a}:b", "{a}", "a b", "a%20b", "é", "🧼", "u1:state", "a/b"]
    for user_id in ids:
        put(stored, make_state(release, user_id))

    async def run():
        async with opened(redis_url, listening=False) as store:
            return [await store.find(user_id, long()) for user_id in ids]

    for user_id, found in zip(ids, asyncio.run(run()), strict=True):
        assert found.pair.state == encode_state(make_state(release, user_id), 1)


def test_a_second_look_comes_from_memory_until_the_worker_says_so(stored, redis_url, release):
    put(stored, make_state(release, bucket=1))

    async def run():
        async with opened(redis_url) as store:
            first, second = await store.find("u1", long()), await store.find("u1", long())
            put(stored, make_state(release, bucket=2))
            stored.publish(INVALIDATION_CHANNEL, msgspec.msgpack.encode(["someone", "u1"]))
            await until(lambda: store.cache.fresh("u1") is None)
            return first, second, await store.find("u1", long())

    first, second, third = asyncio.run(run())
    assert not first.cached
    assert second.cached
    assert second.pair == first.pair
    assert third.pair.state == encode_state(make_state(release, bucket=2), 1)


def test_a_message_that_can_not_be_read_drops_everything(stored, redis_url, release):
    put(stored, make_state(release))

    async def run():
        async with opened(redis_url) as store:
            await store.find("u1", long())
            assert len(store.cache) == 1
            stored.publish(INVALIDATION_CHANNEL, b"\xc1")
            await until(lambda: len(store.cache) == 0)

    asyncio.run(run())


def test_while_the_subscription_is_down_the_cache_is_bypassed(stored, redis_server, release):
    put(stored, make_state(release, bucket=1))

    async def run():
        async with proxied(redis_server) as proxy, opened(proxy.url) as store:
            await store.find("u1", long())
            assert store.cache.fresh("u1")
            proxy.cut()
            await until(lambda: not store.cache.live)
            put(stored, make_state(release, bucket=2))
            meanwhile = await store.find("u1", long())
            await until(lambda: store.cache.live)
            return meanwhile, len(store.cache)

    meanwhile, kept = asyncio.run(run())
    assert not meanwhile.cached
    assert meanwhile.pair.state == encode_state(make_state(release, bucket=2), 1)
    assert kept == 0, "what was missed is not known: it starts empty"


def test_a_subscription_that_died_silently_is_noticed(stored, redis_server, monkeypatch):
    monkeypatch.setattr("online.invalidation.PING_EVERY_S", 0.1)

    async def run():
        async with proxied(redis_server) as proxy, opened(proxy.url) as store:
            proxy.mute = True
            await until(lambda: not store.cache.live)
            proxy.mute = False
            await until(lambda: store.cache.live)

    asyncio.run(run())


def test_the_deadline_bounds_the_look_up(stored, redis_server):
    async def run():
        async with proxied(redis_server) as proxy, opened(proxy.url, listening=False) as store:
            assert (await store.find("u1", long())).fault is None
            spent = await store.find("u1", Deadline(0.0))
            idle = len(store.nodes.of("u1").pool._idle)
            proxy.mute = True
            return await store.find("u1", Deadline(0.02)), spent, idle

    late, spent, idle = asyncio.run(run())
    assert late.fault == spent.fault == (State.TIMED_OUT, Reason.STORE_TIMEOUT)
    assert idle == 1, "a spent deadline asks nothing, and so costs no connection"


def test_the_stores_own_limit_bounds_it_too(stored, redis_server):
    async def run():
        async with proxied(redis_server) as proxy, opened(proxy.url, timeout_s=0.05, listening=False) as store:
            proxy.mute = True
            return await store.find("u1", long())

    assert asyncio.run(run()).fault == (State.TIMED_OUT, Reason.STORE_TIMEOUT)


def test_the_circuit_opens_and_a_probe_closes_it(stored, redis_server, release, clock):
    put(stored, make_state(release))

    async def run():
        async with proxied(redis_server) as proxy:
            store = Store(proxy.url, timeout_s=20.0, cache_bytes=0, clock=clock)
            await proxy.stop()
            down = []
            for _ in range(7):
                down.append((await store.find("u1", long())).fault)
                clock.now += 0.3 * SPAN_S
            await proxy.start()
            still = (await store.find("u1", long())).fault
            clock.now += 2.0
            back = await store.find("u1", long())
            return down, still, back

    down, still, back = asyncio.run(run())
    assert down == [(State.UNAVAILABLE, Reason.STORE_DOWN)] * 5 + [(State.UNAVAILABLE, Reason.CIRCUIT_OPEN)] * 2
    assert still == (State.UNAVAILABLE, Reason.CIRCUIT_OPEN)
    assert back.fault is None
    assert back.pair.state is not None


def test_impatient_requests_do_not_open_the_circuit(stored, redis_server):
    async def run():
        async with proxied(redis_server) as proxy, opened(proxy.url, listening=False) as store:
            proxy.delay_s = 0.05
            for _ in range(20):
                await store.find("u1", Deadline(0.002))
            return store.circuit_open

    assert asyncio.run(run()) is False


def test_with_redis_gone_what_is_known_is_the_last_resort(stored, redis_server, release):
    put(stored, make_state(release))

    async def run():
        async with proxied(redis_server) as proxy, opened(proxy.url) as store:
            await store.find("u1", long())
            await proxy.stop()
            await until(lambda: not store.cache.live)
            return await store.find("u1", long()), await store.find("u2", long())

    known, unknown = asyncio.run(run())
    assert known.fault == (State.UNAVAILABLE, Reason.STORE_DOWN)
    assert known.pair.state == encode_state(make_state(release), 1)
    assert unknown.pair is None


@pytest.mark.parametrize(
    "reply",
    [b":1\r\n", b"*1\r\n$-1\r\n", b"+OK\r\n", b"-LOADING Redis is loading\r\n", b"*-1\r\n", b"*2\r\n:1\r\n:2\r\n"],
)
def test_a_reply_of_another_shape_is_a_fault_not_a_value(stored, redis_server, reply):
    async def run():
        async with proxied(redis_server) as proxy, opened(proxy.url, listening=False) as store:
            proxy.garbage = reply
            return await store.find("u1", long())

    assert asyncio.run(run()).fault == (State.UNAVAILABLE, Reason.STORE_DOWN)


def test_a_value_of_another_type_in_redis_is_missing_not_an_error(stored, redis_url):
    stored.lpush(state_key("u1"), "a list")

    async def run():
        async with opened(redis_url, listening=False) as store:
            return await store.find("u1", long())

    assert asyncio.run(run()).pair == Pair(None, None)
