"""Listens for the users whose state has just been written and drops them from the cache."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol, cast

import hiredis
import msgspec

from online.cache import Cache
from online.deadline import Clock
from online.link import Connection
from schemas.keys import INVALIDATION_CHANNEL

PING_EVERY_S = 2.0
RETRY_S = 0.5
log = logging.getLogger(__name__)
_users = msgspec.msgpack.Decoder(list[str])


class Place(Protocol):
    """Where announcements are heard: a server, or any node of a cluster, which passes them on."""

    async def connect(self) -> Connection:
        """A connection. Raises OSError or hiredis.HiredisError."""
        ...


class Listener:
    """Keeps one subscription. While it is down the cache is not trusted; when it is back the cache starts empty."""

    def __init__(self, place: Place, cache: Cache, clock: Clock = time.monotonic) -> None:
        self._place = place
        self._cache = cache
        self._clock = clock
        self._heard_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._listen()
            except (OSError, TimeoutError, hiredis.HiredisError) as error:
                if self._cache.live:
                    log.warning("invalidations stopped, the cache is bypassed: %s", error)
            finally:
                self._cache.live = False
            await asyncio.sleep(RETRY_S)

    async def _listen(self) -> None:
        async with asyncio.timeout(PING_EVERY_S):
            link = await self._place.connect()
        try:
            self._heard_at = self._clock()
            link.subscribe(INVALIDATION_CHANNEL, self.hear)
            while not link.lost.done():
                await asyncio.wait({link.lost}, timeout=PING_EVERY_S)
                # A connection can die without a word; silence after a ping is the only sign.
                if self._clock() - self._heard_at > 2 * PING_EVERY_S:
                    raise TimeoutError("no answer to a ping")
                link.send("PING")
        finally:
            link.close()

    def hear(self, reply: object) -> None:
        """One reply of a subscribed connection: a confirmation, a pong or a message."""
        self._heard_at = self._clock()
        match cast("list[Any]", reply):
            case [b"subscribe", _, _]:
                self._cache.clear()
                self._cache.live = True
            case [b"message", _, bytes(payload)]:
                self._drop(payload)
            case _:
                pass

    def _drop(self, payload: bytes) -> None:
        try:
            changed = _users.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            log.warning("an invalidation that can't be read: the whole cache is dropped")
            self._cache.clear()
            return
        for user_id in changed:
            self._cache.drop(user_id)
