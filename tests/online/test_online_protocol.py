"""The length of a request's head, and how answers are written, on a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import uvicorn

from online.protocol import MAX_HEAD_BYTES, BoundedProtocol, WholeAnswers

BODIES: dict[str, list[bytes]] = {"/": [b""], "/one": [b"one"], "/two": [b"HTTP/1.1 ", b"HTTP/1.1 200 OK"]}


async def application(scope, receive, send):
    """``/204`` has no body, ``/broken`` fails after the head, others say how long theirs is unless it is in two."""
    while (await receive()).get("more_body"):
        pass
    pieces = BODIES.get(scope["path"], [b"three"])
    length = [(b"content-length", b"%d" % len(pieces[0]))] if len(pieces) == 1 else []
    status = {"/204": 204}.get(scope["path"], 200)
    await send({"type": "http.response.start", "status": status, "headers": [] if status == 204 else length})
    if scope["path"] == "/broken":
        raise OSError
    for number, piece in enumerate([b""] if status == 204 else pieces, 1):
        await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})


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


class Written:
    """A transport that remembers."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"


def test_head_and_body_are_one_write():
    answers = WholeAnswers(written := Written())
    for _ in range(2):
        answers.write(HEAD)
        assert written.pieces[-1:] in ([], [HEAD + b"one"])
        answers.write(b"one")
        answers.flush()
    answers.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert written.pieces == [HEAD + b"one", HEAD + b"one", b"HTTP/1.1 100 Continue\r\n\r\n"]


def test_the_server_writes_through_it(monkeypatch):
    written = []
    monkeypatch.setattr(
        WholeAnswers, "write", lambda answers, data: written.append(data) or answers._transport.write(data)
    )

    async def act(reader, writer):
        writer.write(b"GET /one HTTP/1.1\r\nhost: x\r\n\r\n")
        return [await reader.readuntil(b"one")]

    assert on_a_server(act) == [b"".join(written)]


def test_a_head_alone_goes_out_when_it_is_all_and_before_the_end():
    for end in (WholeAnswers.flush, WholeAnswers.close):
        answers = WholeAnswers(written := Written())
        answers.write(HEAD)
        end(answers)
        assert written.pieces == [HEAD]
    answers = WholeAnswers(gone := Written())
    answers.write(HEAD)
    gone.close()
    answers.close()
    assert gone.pieces == []


def test_answers_of_every_kind_come_whole_and_in_order_over_one_connection():
    async def act(reader, writer):
        async def ask(verb: bytes, path: bytes, more: bytes = b"") -> bytes:
            writer.write(b"%s %s HTTP/1.1\r\nhost: x\r\n%s\r\n" % (verb, path, more))
            return (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]

        told = [await ask(b"GET", b"/one"), await reader.readexactly(3)]
        told += [await ask(b"HEAD", b"/one"), await ask(b"GET", b"/204"), await ask(b"GET", b"/")]
        told += [await ask(b"GET", b"/two"), await reader.readuntil(b"0\r\n\r\n")]
        told += [await ask(b"POST", b"/one", b"content-length: 3\r\nexpect: 100-continue\r\n")]
        writer.write(b"abc")
        told += [(await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0], await reader.readexactly(3)]
        writer.write(b"GET /one HTTP/1.1\r\nhost: x\r\n\r\n" * 2)  # pipelined
        told += [(await reader.readuntil(b"one")).split(b"\r\n")[0] for _ in range(2)]
        return [*told, await ask(b"GET", b"/broken"), await reader.read()]

    ok = b"HTTP/1.1 200 OK"
    two = b"9\r\nHTTP/1.1 \r\nf\r\nHTTP/1.1 200 OK\r\n0\r\n\r\n"
    expected = [ok, b"one", ok, b"HTTP/1.1 204 No Content", ok, ok, two]
    expected += [b"HTTP/1.1 100 Continue", ok, b"one", ok, ok, ok, b""]
    assert on_a_server(act) == expected
