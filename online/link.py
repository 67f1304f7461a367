"""A Redis connection that can't mix up answers, and the pool that keeps a few of them.

Asyncio clients that share a connection have handed one caller's reply to the next after a cancelled read. Here a
connection carries one question at a time, and one that is left before its reply was read is closed, not reused.
"""

from __future__ import annotations

import asyncio
import os
import select
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from copy import copy
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import hiredis

from schemas.errors import StoreError

_pack = cast("Callable[[tuple[bytes | str, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]
_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
_NOTHING = object()  # hiredis says False by default, which a reply could be


class Connection(asyncio.Protocol):
    """One socket."""

    def __init__(self) -> None:
        self._on_push: Callable[[object], None] | None = None
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self._question: asyncio.Future[Any] | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answered = False
        """The last question was given up although its reply lay in the socket: this process was late, not Redis."""

    @property
    def usable(self) -> bool:
        """Open, no reply is owed, and nothing unasked has come."""
        return not self.lost.done() and self._question is None and not self._reader.has_data()

    def subscribe(self, channel: str, on_push: Callable[[object], None]) -> None:
        """From here on every reply goes to ``on_push``; the connection is good for nothing else."""
        self._on_push = on_push
        self.send("SUBSCRIBE", channel)

    async def ask(self, *words: bytes | str) -> Any:
        """Send a command and return its reply.

        Raises:
            ConnectionError: the connection is lost, or what came is not Redis's protocol.
            hiredis.ReplyError: Redis refused the command.

        When the caller stops waiting, for whatever reason, the connection is closed.
        """
        question = self._question = asyncio.get_running_loop().create_future()
        try:
            self.send(*words)
            reply = await question
        except BaseException:
            self.answered = self._unread()
            self.close()
            raise
        self._question = None
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def send(self, *words: bytes | str) -> None:
        """Write a command without waiting. Raises ConnectionError when the connection is lost."""
        if self._transport is None or self.lost.done():
            raise ConnectionError("the connection to Redis is lost")
        self._transport.write(_pack(words))

    def close(self) -> None:
        """Close at once; unsent and unread bytes are dropped."""
        self._end(ConnectionError("the connection to Redis was closed"))
        if self._transport is not None:
            self._transport.abort()

    def _unread(self) -> bool:
        """Bytes have come that the loop has not read yet."""
        handle: Any = self._transport and self._transport.get_extra_info("socket")
        if handle is None or self.lost.done():
            return False
        poller = select.poll()
        poller.register(handle.fileno(), select.POLLIN | _GONE)
        return any(event & select.POLLIN and not event & _GONE for _, event in poller.poll(0))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionError(f"the connection to Redis was lost: {exc or 'closed by the server'}"))

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _NOTHING:
                self._deliver(reply)
        except hiredis.ProtocolError as error:
            self._end(ConnectionError(f"not Redis's protocol: {error}"))
            self.close()

    def _deliver(self, reply: object) -> None:
        if self._on_push is not None:
            self._on_push(reply)
        elif self._question is not None and not self._question.done():
            self._question.set_result(reply)
        else:
            self.close()  # an answer that nobody asked for: what follows can't be trusted

    def _end(self, error: ConnectionError) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        if self._question is not None and not self._question.done():
            self._question.set_exception(error)


class Address:
    """Where Redis is: ``redis://[[user]:password@]host:port/db``, ``rediss://…`` (TLS), ``unix:///path``, or
    ``redis+cluster://[[user]:password@]host:port``: any node of a cluster.

    Raises:
        StoreError: anything else.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        mend = "As in redis://127.0.0.1:6379/0."
        if parts.scheme not in ("redis", "rediss", "unix", "redis+cluster"):
            raise StoreError("not an address of Redis", where="--redis", value=parts.scheme, mend=mend)
        self.cluster = parts.scheme == "redis+cluster"
        self._path = unquote(parts.path) if parts.scheme == "unix" else None
        self._tls = ssl.create_default_context() if parts.scheme == "rediss" else None
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")
        self.host = parts.hostname or "localhost"
        try:
            self._port = parts.port or 6379
            self._db = 0 if self._path else int(parts.path.strip("/") or 0)
        except ValueError as error:
            raise StoreError(f"not an address of Redis: {error}", where="--redis", mend=mend) from None
        if self.cluster and self._db:
            raise StoreError("a cluster has one database", where="--redis", value=self._db, mend="Name none.")

    def at(self, host: str, port: int) -> Address:
        """Another node, with the same login."""
        other = copy(self)
        other.host, other._port = host, port
        return other

    async def connect(self) -> Connection:
        """A connection, logged in. Raises OSError or hiredis.ReplyError."""
        loop = asyncio.get_running_loop()
        link = Connection()
        # A caller that gives up while we connect leaves no socket behind: asyncio closes it, and ``ask`` closes ours.
        if self._path is not None:
            await loop.create_unix_connection(lambda: link, self._path)
        else:
            await loop.create_connection(lambda: link, self.host, self._port, ssl=self._tls)
        if self._password:
            await link.ask("AUTH", *([self._user] if self._user else []), self._password)
        if self._db:
            await link.ask("SELECT", str(self._db))
        return link


class Attempt:
    """How far one look-up came, for when it is given up."""

    __slots__ = ("begun", "link")

    def __init__(self) -> None:
        self.begun = False
        """It had a place in the pool: what it waited for from there on is Redis."""
        self.link: Connection | None = None


class Pool:
    """At most ``size`` connections. Made lazily and per process: after a fork the child opens its own."""

    def __init__(self, address: Address, size: int) -> None:
        self._address = address
        self._size = size
        self._inherited: list[Connection] = []
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(self._size)

    @asynccontextmanager
    async def connection(self, attempt: Attempt | None = None) -> AsyncGenerator[Connection]:
        """Borrow a connection; bound the wait from outside. It goes back only if no reply is owed."""
        if os.getpid() != self._pid:
            # Kept, not closed: the sockets are the parent's.
            self._inherited += self._idle
            self._start()
        attempt = attempt or Attempt()
        async with self._free:
            attempt.begun = True
            attempt.link = link = self._take() or await self._address.connect()
            try:
                yield link
            finally:
                if link.usable:
                    self._idle.append(link)
                else:
                    link.close()

    def _take(self) -> Connection | None:
        while self._idle:
            link = self._idle.pop()
            if link.usable:
                return link
            link.close()
        return None

    def close(self) -> None:
        """Close what is idle; what is lent closes when it comes back lost."""
        while self._idle:
            self._idle.pop().close()
