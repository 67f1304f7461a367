"""Events on their way to Kafka: a bounded buffer in memory and one thread that empties it.

A request never waits for Kafka. While Kafka is gone the buffer fills; what no longer fits is refused and counted, and
the client, which keeps its events until they are taken, sends them again: the same event twice is one event.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from schemas.errors import StoreError
from schemas.topics import EVENTS_TOPIC

MAX_BYTES = 16 * 1024 * 1024
OVERHEAD_BYTES = 200
RETRY_S = 0.5
CLOSE_S = 4.0
log = logging.getLogger(__name__)


class Producer(Protocol):
    """What the outbox needs of Kafka. Only the outbox's thread calls it, so it may block, but not for ever."""

    def send(self, topic: str, key: bytes, value: bytes, lost: Callable[[], None]) -> None:
        """Take one record. ``lost`` is called if it is given up later. Raises StoreError when it can't be taken now."""
        ...

    def close(self, timeout_s: float) -> None:
        """Send what was taken, for this long at most."""
        ...


class Outbox:
    """``put`` from the event loop; ``start`` and ``close`` once.

    Args:
        connect: makes the producer; called in the thread, again and again while it raises StoreError.
        max_bytes: of keys, values and an overhead for each.
    """

    def __init__(self, connect: Callable[[], Producer], max_bytes: int = MAX_BYTES) -> None:
        self._connect = connect
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._drain, name="events", daemon=True)
        self._said = ""
        self.num_bytes = 0
        self.num_lost = 0
        """Taken by the producer and given up by it later."""

    def put(self, key: bytes, value: bytes) -> bool:
        """Keep a record to be sent; False when there is no room. Records are sent in the order they came."""
        size = len(key) + len(value) + OVERHEAD_BYTES
        with self._changed:
            if self.num_bytes + size > self._max_bytes or self._closing.is_set():
                return False
            self._waiting.append((key, value))
            self.num_bytes += size
            self._changed.notify()
        return True

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Send what waits, within ``CLOSE_S``; the rest is counted as lost."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        with self._changed:
            self.num_lost += len(self._waiting)
            if self._waiting:
                log.error("%d events could not be sent before the end", len(self._waiting))
            self._waiting.clear()

    def _drain(self) -> None:
        producer = self._connected()
        while producer is not None and (record := self._next()) is not None:
            try:
                producer.send(EVENTS_TOPIC, *record, self._count_lost)
            except StoreError as error:
                self._say(error)
                if self._closing.wait(RETRY_S):
                    break  # told to end while Kafka takes nothing
                continue
            self._sent(record)
        if producer is not None:
            producer.close(CLOSE_S / 2)

    def _connected(self) -> Producer | None:
        while True:
            try:
                return self._connect()
            except StoreError as error:
                self._say(error)
                if self._closing.wait(RETRY_S):
                    return None

    def _next(self) -> tuple[bytes, bytes] | None:
        """The oldest record, left where it is until it was taken; None when told to end and nothing waits."""
        with self._changed:
            while not self._waiting:
                if self._closing.is_set():
                    return None
                self._changed.wait()
            return self._waiting[0]

    def _sent(self, record: tuple[bytes, bytes]) -> None:
        self._said = ""
        with self._changed:
            if self._waiting:
                self._waiting.popleft()
                self.num_bytes -= len(record[0]) + len(record[1]) + OVERHEAD_BYTES

    def _count_lost(self) -> None:
        with self._changed:
            self.num_lost += 1

    def _say(self, error: StoreError) -> None:
        if str(error) != self._said:
            log.warning("events wait (%d bytes): %s", self.num_bytes, error)
        self._said = str(error)
