"""Where a user's keys are: one Redis server, or the node of a cluster that has the user's slot.

A node has connections and a circuit of its own: one that is down costs its own users and nobody else's time.
"""

from __future__ import annotations

import asyncio
import logging
from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any, Protocol, cast

import hiredis

from online.breaker import Breaker
from online.deadline import Clock
from online.link import Address, Connection, Pool
from schemas.keys import state_key

SLOTS = 16_384
CONNECTIONS = 16
EVERY_S = 5.0
LOAD_S = 1.0
Redirect = tuple["Node", bool]  # where to ask instead, and whether it must be told ASKING
log = logging.getLogger(__name__)


class Node:
    """One server."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address = address
        self.pool = Pool(address, CONNECTIONS)
        self.breaker = Breaker(clock)


class Nodes(Protocol):
    """The servers."""

    def of(self, user_id: str) -> Node | None:
        """The one that has the user's keys; None when it is not known."""
        ...

    def redirected(self, error: hiredis.ReplyError) -> Redirect | None:
        """Where this refusal sends us, if it does."""
        ...

    def all(self) -> Sequence[Node]:
        """Every one that is known."""
        ...

    async def connect(self) -> Connection:
        """A connection to any of them, for announcements. Raises OSError or hiredis.HiredisError."""
        ...

    async def follow(self) -> None:
        """Keep the picture true, until cancelled."""
        ...


def open_nodes(url: str, clock: Clock) -> Nodes:
    """``redis+cluster://HOST:PORT`` is any node of a cluster; else one server. Raises StoreError."""
    address = Address(url)
    return Cluster(address, clock) if address.cluster else Single(address, clock)


class Single:
    """One server has all keys."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._node = Node(address, clock)

    def of(self, user_id: str) -> Node | None:
        return self._node

    def redirected(self, error: hiredis.ReplyError) -> Redirect | None:
        return None

    def all(self) -> Sequence[Node]:
        return (self._node,)

    async def connect(self) -> Connection:
        return await self._node.address.connect()

    async def follow(self) -> None:
        return


class Cluster:
    """The slots by node, asked of the cluster at the start, every ``EVERY_S`` and after a redirect."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._seed = address
        self._clock = clock
        self._nodes: dict[tuple[str, int], Node] = {}
        self._slots: list[Node | None] = [None] * SLOTS
        self._changed = asyncio.Event()
        self._turn = 0

    def of(self, user_id: str) -> Node | None:
        node = self._slots[slot(user_id)]
        if node is None:
            self._changed.set()
        return node

    def redirected(self, error: hiredis.ReplyError) -> Redirect | None:
        match str(error).split():
            case ["MOVED" | "ASK" as how, number, place] if number.isdecimal():
                host, _, port = place.rpartition(":")
                node = self._node(host or self._seed.host, int(port))
                if how == "MOVED":
                    self._slots[int(number) % SLOTS] = node
                    self._changed.set()
                return node, how == "ASK"
            case _:
                return None

    def all(self) -> Sequence[Node]:
        return tuple(self._nodes.values())

    async def connect(self) -> Connection:
        """Each time another node first: the one before may be the reason for the question."""
        addresses = [node.address for node in self._nodes.values()] or [self._seed]
        self._turn = (self._turn + 1) % len(addresses)
        return await addresses[self._turn].connect()

    async def follow(self) -> None:
        while True:
            await self.load()
            try:
                async with asyncio.timeout(EVERY_S):
                    await self._changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(LOAD_S / 10)  # not at every request of an outage
            self._changed.clear()

    async def load(self) -> bool:
        """Ask one after the other which node has which slots. False, and the old picture stays, when none answers."""
        for address in [*(node.address for node in self._nodes.values()), self._seed]:
            try:
                async with asyncio.timeout(LOAD_S):
                    link = await address.connect()
                    try:
                        self._take(address, cast("list[Any]", await link.ask("CLUSTER", "SLOTS")))
                    finally:
                        link.close()
            except (OSError, hiredis.HiredisError, TypeError, ValueError, IndexError) as error:
                log.debug("a node of the cluster does not say who has which slots: %s", error)
                continue
            return True
        return False

    def _take(self, asked: Address, ranges: list[Any]) -> None:
        slots: list[Node | None] = [None] * SLOTS
        for first, last, master, *_replicas in ranges:
            host = bytes(master[0] or b"").decode() or asked.host  # a node that does not know its own name says none
            slots[first : last + 1] = [self._node(host, int(master[1]))] * (last + 1 - first)
        self._slots = slots
        kept = {id(node) for node in slots}
        for key, node in list(self._nodes.items()):
            if id(node) not in kept:
                self._nodes.pop(key).pool.close()

    def _node(self, host: str, port: int) -> Node:
        node = self._nodes.get((host, port))
        if node is None:
            node = self._nodes[host, port] = Node(self._seed.at(host, port), self._clock)
        return node


def slot(user_id: str) -> int:
    """Of the user's keys: CRC-16/XMODEM of the hash tag, as the cluster's specification has it."""
    tag = state_key(user_id).partition("{")[2].partition("}")[0]
    return crc_hqx(tag.encode(), 0) % SLOTS
