"""Connections and their pool against a real Redis behind a proxy that misbehaves."""

from __future__ import annotations

import asyncio
import os

import hiredis
import pytest
from online_proxy import proxied

from online.link import Address, Pool
from schemas.errors import StoreError


async def get(pool: Pool, key: str, limit_s: float = 5.0) -> bytes | None:
    async with asyncio.timeout(limit_s), pool.connection() as link:
        return await link.ask("GET", key)


def test_a_cancelled_read_never_hands_its_reply_to_the_next_caller(stored, redis_server):
    for number in range(1000):
        stored.set(f"a{number}", f"first {number}")
        stored.set(f"b{number}", f"second {number}")

    async def run() -> tuple[int, list[bytes | None]]:
        given_up, answers = 0, []
        async with proxied(redis_server) as proxy:
            pool = Pool(Address(proxy.url), 1)
            for number in range(1000):
                proxy.delay_s = 0.02
                reader = asyncio.create_task(get(pool, f"a{number}", 0.002))
                await asyncio.sleep(0)
                try:
                    await reader
                except TimeoutError:
                    given_up += 1
                proxy.delay_s = 0.0
                answers.append(await get(pool, f"b{number}"))
            pool.close()
        return given_up, answers

    given_up, answers = asyncio.run(run())
    assert given_up > 900, "the proxy was too fast to test anything"
    assert answers == [f"second {number}".encode() for number in range(1000)]


def test_an_abandoned_connection_is_closed_and_a_whole_one_is_reused(stored, redis_server):
    async def run() -> list[int]:
        counts = []
        async with proxied(redis_server) as proxy:
            pool = Pool(Address(proxy.url), 1)
            for _ in range(3):
                await get(pool, "x")
            counts.append(proxy.num_connections)
            proxy.delay_s = 0.2
            with pytest.raises(TimeoutError):
                await get(pool, "x", 0.02)
            proxy.delay_s = 0.0
            await get(pool, "x")
            counts.append(proxy.num_connections)
        return counts

    assert asyncio.run(run()) == [1, 2]


def test_an_error_reply_is_raised_and_costs_no_connection(stored, redis_server):
    async def run() -> int:
        async with proxied(redis_server) as proxy:
            pool = Pool(Address(proxy.url), 1)
            for _ in range(2):
                with pytest.raises(hiredis.ReplyError):
                    async with pool.connection() as link:
                        await link.ask("NO-SUCH-COMMAND")
            return proxy.num_connections

    assert asyncio.run(run()) == 1


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 200 OK\r\n\r\n", b"\x00\xff\xfe" * 100, b"$5\r\nab\r\n\r\n"])
def test_garbage_is_an_error_and_ends_the_connection(stored, redis_server, garbage):
    async def run() -> bytes | None:
        async with proxied(redis_server) as proxy:
            pool = Pool(Address(proxy.url), 1)
            proxy.garbage = garbage
            with pytest.raises((ConnectionError, TimeoutError)):
                await get(pool, "x", 0.5)
            proxy.garbage = b""
            stored.set("x", "whole")
            return await get(pool, "x")

    assert asyncio.run(run()) == b"whole"


@pytest.mark.parametrize("unasked", [b"$-1\r\n$6\r\nunasked\r\n", b"$-1\r\n$40\r\nhalf an answer"])
def test_a_connection_on_which_more_came_than_was_asked_is_not_reused(stored, redis_server, unasked):
    async def run() -> bytes | None:
        async with proxied(redis_server) as proxy:
            pool = Pool(Address(proxy.url), 1)
            proxy.garbage = unasked
            await get(pool, "x")
            proxy.garbage = b""
            stored.set("x", "own")
            return await get(pool, "x")

    assert asyncio.run(run()) == b"own"


def test_a_server_that_comes_back_is_used_again(stored, redis_server):
    async def run() -> bytes | None:
        async with proxied(redis_server) as proxy:
            pool = Pool(Address(proxy.url), 2)
            await get(pool, "x")
            await proxy.stop()
            with pytest.raises(OSError):
                await get(pool, "x")
            await proxy.start()
            stored.set("x", "back")
            return await get(pool, "x")

    assert asyncio.run(run()) == b"back"


def test_waiting_for_a_connection_counts(stored, redis_server):
    async def run() -> list[object]:
        async with proxied(redis_server) as proxy:
            proxy.delay_s = 0.05
            pool = Pool(Address(proxy.url), 10)
            waits = (get(pool, "x", 0.03) for _ in range(200))
            return await asyncio.gather(*waits, return_exceptions=True)

    outcomes = asyncio.run(run())
    assert all(isinstance(outcome, TimeoutError) for outcome in outcomes)


def test_two_hundred_at_once_share_ten_connections(stored, redis_server):
    for number in range(200):
        stored.set(str(number), number)

    async def run() -> tuple[int, list[bytes | None]]:
        async with proxied(redis_server) as proxy:
            pool = Pool(Address(proxy.url), 10)
            answers = await asyncio.gather(*(get(pool, str(number)) for number in range(200)))
            return proxy.num_connections, answers

    connections, answers = asyncio.run(run())
    assert connections == 10
    assert answers == [str(number).encode() for number in range(200)]


def test_a_forked_child_opens_its_own_connections(stored, redis_server, redis_url):
    stored.set("who", "parent and child")
    loop = asyncio.new_event_loop()
    pool = Pool(Address(redis_url), 1)
    assert loop.run_until_complete(get(pool, "who")) == b"parent and child"
    parents = pool._idle[0]
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        answer = b"failed"
        try:
            answer = asyncio.run(get(pool, "who")) or b"nothing"
            answer = b"inherited" if pool._idle[0] is parents else answer
        finally:
            os.write(tell, answer)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(told, 100) == b"parent and child"
    assert loop.run_until_complete(get(pool, "who")) == b"parent and child"
    assert pool._idle[0] is parents, "the parent's connection is still good"
    loop.close()


def test_login_and_database(stored, redis_server):
    async def run() -> bytes | None:
        pool = Pool(Address(f"redis://default:anything@127.0.0.1:{redis_server}/3"), 1)
        return await get(pool, "x")

    stored.execute_command("ACL", "SETUSER", "default", "resetpass", ">anything")
    try:
        stored.execute_command("AUTH", "default", "anything")
        stored.execute_command("SELECT", "3")
        stored.set("x", "third")
        assert asyncio.run(run()) == b"third"
    finally:
        stored.execute_command("ACL", "SETUSER", "default", "nopass")
        stored.execute_command("SELECT", "0")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:6379", "redis://h:port", "redis://h/first", ""])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(StoreError, match="--redis"):
        Address(url)
