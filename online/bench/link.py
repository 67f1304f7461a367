"""The load generator's connection: bare HTTP/1.1 that costs little, and another instance when one can't be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

WAIT_S = 5.0
HEAD = b"POST %s HTTP/1.1\r\nhost: b\r\ncontent-type: application/msgpack\r\ncontent-length: %d\r\n\r\n"


class Link:
    """One connection, kept. ``moved``: the last answer came from another instance than the first one named."""

    def __init__(self, host: str, ports: Sequence[int]) -> None:
        self._host = host
        self._ports = list(ports)
        self._turn = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def moved(self) -> bool:
        """Not the first instance is asked."""
        return self._turn % len(self._ports) != 0

    async def open(self) -> None:
        """Connect to the instance whose turn it is, unless it is. Raises OSError."""
        if self._streams is not None and self._streams[1].is_closing():
            self._streams = None
        if self._streams is None:
            port = self._ports[self._turn % len(self._ports)]
            self._streams = await asyncio.open_connection(self._host, port)

    async def post(self, path: str, body: Callable[[], bytes]) -> tuple[int, bytes]:
        """Status and content. A lost connection is made anew once for each instance, and ``body`` asked for again: less
        time is left. Raises OSError.
        """
        for left in reversed(range(len(self._ports) + 1)):
            try:
                async with asyncio.timeout(WAIT_S):
                    return await self._post(path, body())
            except (OSError, RuntimeError, asyncio.IncompleteReadError) as error:  # uvloop: its transport is closed
                self.close()
                self._turn += 1
                if not left or isinstance(error, TimeoutError):
                    raise OSError("no instance answers") from error
        raise AssertionError

    async def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        await self.open()
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(HEAD % (path.encode(), len(body)) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(head[9:12]), await reader.readexactly(size)

    def close(self) -> None:
        """Close it; the next ``post`` makes another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
