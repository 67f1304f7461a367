"""The length of a request's head, on a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import uvicorn

from online.protocol import MAX_HEAD_BYTES, BoundedProtocol


async def application(_scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


def on_a_server(act: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[list[bytes]]]) -> list[bytes]:
    async def run() -> list[bytes]:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            config = uvicorn.Config(application, http=BoundedProtocol, lifespan="off", log_config=None)
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            try:
                return await act(reader, writer)
            finally:
                writer.close()
                server.should_exit = True
                await serving

    return asyncio.run(run())


def test_a_head_without_end_is_refused_and_the_connection_ends():
    async def act(reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nlong: ")
        for _ in range(MAX_HEAD_BYTES // 4096 + 1):
            await asyncio.sleep(0.005)
            writer.write(b"a" * 4096)
        return [await reader.readline(), await reader.read()]

    first, rest = on_a_server(act)
    assert first == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    assert rest.endswith(b"\r\n\r\n")


def test_heads_in_pieces_and_long_bodies_are_answered_one_after_the_other():
    async def act(reader, writer):
        told = []
        for _ in range(3):
            body = b"b" * (4 * MAX_HEAD_BYTES)
            head = b"POST / HTTP/1.1\r\nhost: x\r\nlong: " + b"a" * (MAX_HEAD_BYTES // 2)
            for piece in (head, b"\r\ncontent-length: %d\r\n\r\n" % len(body), body):
                writer.write(piece)
                await asyncio.sleep(0.02)
            told.append(await reader.readline())
            await reader.readuntil(b"\r\n\r\n")
        return told

    assert on_a_server(act) == [b"HTTP/1.1 200 OK\r\n"] * 3
