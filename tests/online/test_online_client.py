"""The client: a typed answer or a typed error within its limit, whatever the server does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import httpx
import msgspec
import pytest
from online_values import NOW_MS, make_state
from test_online_service import Shelf

from online.app import App
from online.client import (
    LEAST_MS,
    AsyncRecallClient,
    RecallClient,
    RecallRefusedError,
    RecallTimeoutError,
    RecallUnavailableError,
)
from online.service import Recall
from schemas.locations import ROOT
from schemas.names import Rung


@pytest.fixture
def transport(plan, releases, release):
    recall = Recall(plan, Shelf(make_state(release)), releases, now_ms=lambda: NOW_MS)
    yield httpx.ASGITransport(app=App(recall, 5.0, api_key="k3y"))
    recall.decoder.close()


def ask(transport, user_id="u1", api_key="k3y", **fields):
    async def run():
        made = AsyncRecallClient("http://service", timeout_s=20, api_key=api_key, transport=transport)
        async with made as client:
            return await client.recall(user_id, **fields)

    return asyncio.run(run())


def test_an_answer_is_typed(transport, release):
    response = ask(transport, k=4, budget_ms=5000, exclude=[release.catalogue.item_ids[0]], allow=["tea", "soap"])
    assert response.rung is Rung.GENERATE
    assert 0 < len(response.items) <= 4
    assert all(release.arrays["item_category"][release.item_numbers[i.item_id]] in (2, 3) for i in response.items)


def test_explain_percent_encodes(transport):
    async def run():
        async with AsyncRecallClient("http://service", api_key="k3y", transport=transport) as client:
            return await client.explain("a/b?c%d")

    assert asyncio.run(run()).user_id == "a/b?c%d"


def test_a_refusal_names_the_field(transport):
    with pytest.raises(RecallRefusedError, match="user_id") as refused:
        ask(transport, user_id="a\nb")
    assert refused.value.status == 422
    with pytest.raises(RecallRefusedError) as refused:
        ask(transport, api_key="wrong")
    assert refused.value.status == 401


@asynccontextmanager
async def server(behave):
    running = await asyncio.start_server(behave, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}"
    finally:
        running.close()


async def mute(reader, writer):
    await reader.read(65536)
    await asyncio.sleep(30)


async def drip(reader, writer):
    await reader.read(65536)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await asyncio.sleep(0.01)


async def slam(reader, writer):
    await reader.read(65536)
    writer.transport.abort()


def saying(answer: bytes):
    async def behave(reader, writer):
        await reader.read(65536)
        writer.write(answer)
        writer.close()

    return behave


@pytest.mark.parametrize(
    ("behave", "error"),
    [
        (mute, RecallTimeoutError),
        (drip, RecallTimeoutError),
        (slam, RecallUnavailableError),
        (saying(b"SSH-2.0-OpenSSH\r\n"), RecallUnavailableError),
        (saying(b"HTTP/1.1 502 Bad\r\ncontent-length: 4\r\n\r\noops"), RecallUnavailableError),
        (saying(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\noops"), RecallUnavailableError),
    ],
)
def test_it_never_hangs(behave, error):
    timeout_s = 0.3 if error is RecallTimeoutError else 60

    async def run():
        async with server(behave) as url, AsyncRecallClient(url, timeout_s=timeout_s) as client:
            with pytest.raises(error):
                await client.recall("u1")

    asyncio.run(asyncio.wait_for(run(), 20))


def test_the_synchronous_client_keeps_the_same_promise():
    async def run():
        async with server(drip) as url:

            def call():
                with RecallClient(url, timeout_s=0.3) as client:
                    client.recall("u1", k=3)

            with pytest.raises(RecallTimeoutError):
                await asyncio.to_thread(call)

    asyncio.run(asyncio.wait_for(run(), 20))
    with RecallClient("http://127.0.0.1:9", timeout_s=20) as client, pytest.raises(RecallUnavailableError):
        client.recall("u1")


def test_a_client_made_before_a_fork_works_in_the_child():
    told, tell = os.pipe()
    with RecallClient("http://127.0.0.1:9", timeout_s=5) as client:
        with pytest.raises(RecallUnavailableError):
            client.recall("u1")
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # a hang ends the child, and the test with it
            try:
                client.recall("u1")
            except RecallUnavailableError:
                os.write(tell, b"typed")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(tell)
        assert os.read(told, 100) == b"typed"
        with pytest.raises(RecallUnavailableError):
            client.recall("u1")


def test_a_client_that_is_never_closed_does_not_keep_the_process():
    code = """
from online.client import RecallClient, RecallUnavailableError
client = RecallClient("http://127.0.0.1:9", timeout_s=20)
try:
    client.recall("u1")
except RecallUnavailableError:
    print("typed")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.strip() == "typed"


def test_the_next_instance_is_given_what_is_left_of_the_time(transport):
    """The user's own instance takes the question and dies with it."""
    budgets = []

    class Dying(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            budgets.append(msgspec.msgpack.decode(request.content)["budget_ms"])
            if len(budgets) == 1:
                await asyncio.sleep(0.05)
                raise httpx.ReadError("reset")
            return await transport.handle_async_request(request)

    async def run(budget_ms):
        budgets.clear()
        urls = ["http://a", "http://b"]
        async with AsyncRecallClient(urls, timeout_s=20, api_key="k3y", transport=Dying()) as client:
            response = await client.recall("u1", budget_ms=budget_ms)
        return response, *budgets

    _, first, second = asyncio.run(run(5_000.0))
    assert first == 5_000
    assert 0 < second <= 4_950
    _, first, second = asyncio.run(run(None))
    assert first is None
    assert second is None, "the plan's budget is the service's to know"
    response, _, second = asyncio.run(run(20.0))
    assert second == LEAST_MS
    assert response.rung is not Rung.GENERATE
