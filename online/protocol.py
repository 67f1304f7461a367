"""uvicorn's HTTP with two things that it does not have: a limit on the head of a request, and answers in one write."""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
ANSWER, INTERIM = b"HTTP/1.1 ", b"HTTP/1.1 1"


class WholeAnswers:
    """A transport that keeps the head of an answer back for its body.

    uvloop hands each write to the kernel at once, and two of them wake the client twice: for a head with which it can't
    do anything, and again. Who has no body to write says so with ``flush``.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """As the transport's, but for a head that is not an interim one."""
        if not self._head and data.startswith(ANSWER) and not data.startswith(INTERIM):
            self._head = data
            return
        head, self._head = self._head, b""
        self._transport.write(head + data if head else data)

    def flush(self) -> None:
        """Nothing follows the head."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """What was kept back goes out first, if anybody is there."""
        if not self._transport.is_closing():
            self.flush()
        self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """Answers are written whole. A request's head that has not ended after ``MAX_HEAD_BYTES`` and the piece at hand
    ends the connection."""

    _in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client is there."""
        self._answers = WholeAnswers(transport)
        super().connection_made(cast("asyncio.Transport", self._answers))

    def on_response_complete(self) -> None:
        """An answer is whole, perhaps without a body."""
        self._answers.flush()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """Its head was whole."""
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """A piece as the socket gave it, of 256 KB at most."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(TOO_LARGE)
                self.transport.close()
