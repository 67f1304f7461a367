"""A proxy that stands between the service and Redis and misbehaves on demand."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager


class Proxy:
    """``delay_s`` holds back every reply; ``mute`` swallows them; ``garbage`` replaces them."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.delay_s = 0.0
        self.mute = False
        self.garbage = b""
        self.num_connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and cut those there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self._writers.add(writer)
        above, below = await asyncio.open_connection("127.0.0.1", self.upstream)
        self._writers.add(below)
        tasks = [asyncio.create_task(self._pump(reader, below)), asyncio.create_task(self._pump(above, writer, True))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for end in (writer, below):
                self._writers.discard(end)
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, replies: bool = False) -> None:
        while data := await reader.read(65536):
            if replies:
                await asyncio.sleep(self.delay_s)
                if self.mute:
                    continue
                data = self.garbage or data
            writer.write(data)


@asynccontextmanager
async def proxied(upstream: int):
    """A running proxy."""
    proxy = Proxy(upstream)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
