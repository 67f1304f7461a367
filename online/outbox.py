"""Events on their way to Kafka: a bounded buffer in memory and one thread that empties it.

A request never waits for Kafka. A record has its place in the buffer until Kafka has confirmed it: what Kafka did not
take is sent again, out of order if need be, for it is the events' own time that counts. While Kafka is gone the buffer
fills; what no longer fits is refused and counted, and the client, which keeps its events until they are taken, sends
them again: the same event twice is one event.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
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

    def send(self, topic: str, key: bytes, value: bytes, settled: Callable[[bool], None]) -> None:
        """Take one record. ``settled`` is called once, from any thread: whether Kafka has it. Raises StoreError, and
        then calls nothing, when the record can't be taken now."""
        ...

    def close(self, timeout_s: float) -> None:
        """Send what was taken, for this long at most."""
        ...


Record = tuple[bytes, bytes]


class Outbox:
    """``put`` from the event loop; ``start`` and ``close`` once.

    Args:
        connect: makes the producer; called in the thread, again and again while it raises StoreError.
        max_bytes: of keys, values and an overhead for each.
    """

    def __init__(self, connect: Callable[[], Producer], max_bytes: int = MAX_BYTES) -> None:
        self._connect = connect
        self._max_bytes = max_bytes
        self._waiting: deque[Record] = deque()
        self._num_sent = 0  # and neither confirmed nor given up
        self._refused = False  # lately: the next one waits
        self._closed = False
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._drain, name="events", daemon=True)
        self._said = ""
        self.num_bytes = 0
        """Of the records that Kafka has not confirmed."""
        self.num_lost = 0
        """Not confirmed when the process ended."""

    def put(self, key: bytes, value: bytes) -> bool:
        """Keep a record to be sent; False when there is no room. Records are sent in the order they came."""
        size = _size((key, value))
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
        """Send what waits, within ``CLOSE_S``; what is not confirmed then is counted as lost."""
        self._closing.set()
        with self._changed:
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        with self._changed:
            self._closed = True
            rest = len(self._waiting) + self._num_sent
            self.num_lost += rest
            if rest:
                log.error("%d events could not be sent before the end", rest)
            self._waiting.clear()
            self._num_sent = 0

    def _drain(self) -> None:
        producer = self._connected()
        while producer is not None and (record := self._next()) is not None:
            try:
                producer.send(EVENTS_TOPIC, *record, partial(self._settled, record))
            except StoreError as error:
                self._say(error)
                self._back(record)
            if self._refused and self._closing.wait(RETRY_S):
                break  # told to end while Kafka takes nothing
            self._refused = False
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

    def _next(self) -> Record | None:
        """The oldest record; None when told to end and nothing waits."""
        with self._changed:
            while not self._waiting:
                if self._closing.is_set():
                    return None
                self._changed.wait()
            self._num_sent += 1
            return self._waiting.popleft()

    def _back(self, record: Record) -> None:
        """It was not taken: it is the next one again."""
        with self._changed:
            self._refused = True
            if not self._closed:
                self._num_sent -= 1
                self._waiting.appendleft(record)

    def _settled(self, record: Record, confirmed: bool) -> None:
        """Kafka has it, or the producer gave it up: then it is sent again, after those that wait."""
        with self._changed:
            if self._closed:
                return
            self._num_sent -= 1
            if confirmed:
                self._said = ""
                self.num_bytes -= _size(record)
            else:
                self._refused = True
                self._waiting.append(record)
                self._changed.notify()

    def _say(self, error: StoreError) -> None:
        if str(error) != self._said:
            log.warning("events wait (%d bytes): %s", self.num_bytes, error)
        self._said = str(error)


def _size(record: Record) -> int:
    return len(record[0]) + len(record[1]) + OVERHEAD_BYTES
