"""What Redis holds for a user: one MGET, inside the deadline, behind a cache and a circuit breaker."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import hiredis

from online.cache import Cache, Pair
from online.deadline import Clock, Deadline
from online.invalidation import Listener
from online.link import Attempt
from online.nodes import Node, open_nodes
from schemas.keys import candidates_key, state_key
from schemas.names import Reason, State

FAIR_WAIT_S = 0.010
"""A store that was given this long and did not answer counts as failing; less says nothing about it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The stored values, not yet judged. ``fault`` says why the store could not be asked, if it could not."""

    pair: Pair | None
    fault: tuple[State, Reason] | None = None
    cached: bool = False


class Store:
    """Looks users up. It never raises for what Redis does or does not do."""

    def __init__(self, url: str, *, timeout_s: float, cache_bytes: int, clock: Clock = time.monotonic) -> None:
        self.cache = Cache(cache_bytes, clock)
        self.nodes = open_nodes(url, clock)
        self._listener = Listener(self.nodes, self.cache, clock)
        self._timeout_s = timeout_s
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def circuit_open(self) -> bool:
        """A server is left alone."""
        return any(node.breaker.open for node in self.nodes.all())

    async def start(self) -> None:
        """Start to listen for changes, and to follow a cluster; without it the cache is never used."""
        self._tasks = [asyncio.create_task(work) for work in (self._listener.run(), self.nodes.follow())]

    async def close(self) -> None:
        """Stop listening, close the idle connections."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for node in self.nodes.all():
            node.pool.close()

    async def find(self, user_id: str, deadline: Deadline) -> Found:
        """The user's values. ``user_id`` must have passed ``check_user_id``."""
        if pair := self.cache.fresh(user_id):
            return Found(pair, cached=True)
        node = self.nodes.of(user_id)
        if node is None:
            return self.remembered(user_id, (State.UNAVAILABLE, Reason.STORE_DOWN))
        if not node.breaker.allows():
            return self.remembered(user_id, (State.UNAVAILABLE, Reason.CIRCUIT_OPEN))
        pair = None
        self.cache.begin_read(user_id)
        try:
            pair = await self._read(node, user_id, min(self._timeout_s, deadline.remaining()))
        except TimeoutError:
            return self.remembered(user_id, (State.TIMED_OUT, Reason.STORE_TIMEOUT))
        except (OSError, hiredis.HiredisError):
            node.breaker.failed()
            return self.remembered(user_id, (State.UNAVAILABLE, Reason.STORE_DOWN))
        finally:
            node.breaker.undecided()
            self.cache.end_read(user_id, pair)
        return Found(pair)

    async def _read(self, node: Node, user_id: str, wait_s: float) -> Pair:
        if wait_s <= 0:
            raise TimeoutError  # asking now would only cost a connection
        attempt, begun = Attempt(), self._clock()
        try:
            # The wait covers a free connection, the connect and the reply.
            async with asyncio.timeout(wait_s):
                reply = await self._ask(node, user_id, attempt)
        except TimeoutError:
            fair = wait_s >= min(FAIR_WAIT_S, self._timeout_s)
            if fair and not _ours(attempt, self._clock() - begun - wait_s, wait_s):
                node.breaker.failed()
            raise
        match reply:
            case [bytes() | None as state, bytes() | None as candidates]:
                node.breaker.succeeded()
                return Pair(state, candidates)
            case _:
                raise ConnectionError("a reply of another shape")

    async def _ask(self, node: Node, user_id: str, attempt: Attempt) -> object:
        question = ("MGET", state_key(user_id), candidates_key(user_id))
        try:
            async with node.pool.connection(attempt) as link:
                return await link.ask(*question)
        except hiredis.ReplyError as error:
            if (redirect := self.nodes.redirected(error)) is None:
                raise
        other, asking = redirect
        async with other.pool.connection(attempt) as link:
            if asking:
                await link.ask("ASKING")
            return await link.ask(*question)

    def remembered(self, user_id: str, fault: tuple[State, Reason]) -> Found:
        """What is known of the user without asking, and why the store was not asked."""
        return Found(self.cache.last_resort(user_id), fault, cached=True)


def _ours(attempt: Attempt, late_s: float, wait_s: float) -> bool:
    """It is this process that was late, not Redis: a crowd before the pool, a reply that lay unread, a connect during
    which the loop stood still."""
    if attempt.link is not None:
        return attempt.link.answered
    return not attempt.begun or late_s > wait_s / 2
