"""When a state becomes visible, seen from outside: by a reader of Redis, like the look-up service."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any

import msgspec
from redis.exceptions import RedisError

from nearline.redis_link import connect, failure
from schemas.keys import INVALIDATION_CHANNEL, state_key
from schemas.state import HEADER, STATE_MAGIC

READ_BATCH = 500


def watermarks(client: Any, users: Collection[str]) -> dict[str, int]:
    """The watermark (ms) of each user who has a state; only the values' headers are read."""
    found: dict[str, int] = {}
    names = list(users)
    for start in range(0, len(names), READ_BATCH):
        batch = names[start : start + READ_BATCH]
        pipe = client.pipeline(transaction=False)
        for user_id in batch:
            pipe.getrange(state_key(user_id), 0, HEADER.size - 1)
        for user_id, raw in zip(batch, pipe.execute(), strict=True):
            if len(raw) == HEADER.size and raw.startswith(STATE_MAGIC):
                found[user_id] = HEADER.unpack(raw)[1]
    return found


class Watch:
    """Listens to the announcements of changed users and measures, for some, how long their events took.

    An event counts as visible when the user's watermark has reached its time. That says something only of an event
    newer than all before it: so events at or before a time already seen or sent for their user are not measured.
    """

    def __init__(self, client: Any, measured: Collection[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._lock = Lock()
        self._newest: dict[str, int] = dict.fromkeys(measured, -1) | watermarks(client, measured)
        self._waiting: dict[str, list[tuple[int, float]]] = {}  # user → (event time, when it was sent)
        self.freshness_ms: list[float] = []
        self.changed_at = clock()  # the last announcement, of whomever

    def sent(self, user_id: str, at: int) -> None:
        """An event is about to be sent."""
        if at > self._newest.get(user_id, at):
            with self._lock:
                self._newest[user_id] = at
                self._waiting.setdefault(user_id, []).append((at, self._clock()))

    def announced(self, user_ids: Collection[str]) -> None:
        """Users changed: read the measured ones among them."""
        self.changed_at = self._clock()
        with self._lock:
            read = [user_id for user_id in user_ids if user_id in self._waiting]
        if read:
            self._seen(watermarks(self._client, read))

    @property
    def unseen(self) -> int:
        """Events sent, measured, and not visible yet."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def read(self, users: Collection[str]) -> dict[str, int]:
        """The watermarks of users now. Raises ``StoreError`` when Redis does not answer."""
        try:
            return watermarks(self._client, users)
        except RedisError as error:
            raise failure(error) from None

    def look(self) -> None:
        """Read every user who is waited for, in case an announcement was lost."""
        with self._lock:
            waiting = list(self._waiting)
        self._seen(self.read(waiting))

    def _seen(self, found: Mapping[str, int]) -> None:
        now = self._clock()
        with self._lock:
            for user_id, watermark in found.items():
                events = self._waiting.pop(user_id, [])
                self.freshness_ms += [(now - sent_at) * 1000 for at, sent_at in events if at <= watermark]
                if left := [one for one in events if one[0] > watermark]:
                    self._waiting[user_id] = left


@contextmanager
def watching(url: str, measured: Collection[str]) -> Generator[Watch, None, None]:
    """A ``Watch`` that listens in a thread of its own. Raises ``StoreError`` when Redis does not answer."""
    client: Any = connect(url)
    stop = Flag()
    try:
        watch = Watch(client, measured)
        channel: Any = client.pubsub(ignore_subscribe_messages=True)
        channel.subscribe(INVALIDATION_CHANNEL)
    except RedisError as error:
        raise failure(error) from None
    thread = Thread(target=_listen, args=(channel, watch, stop), name="watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join(5)
        channel.close()
        client.close()


def _listen(channel: Any, watch: Watch, stop: Flag) -> None:
    while not stop.is_set():
        try:
            message = channel.get_message(timeout=0.25)
            if message is not None:
                watch.announced(msgspec.msgpack.decode(message["data"], type=list[str]))
        except (RedisError, msgspec.DecodeError):  # what it missed is read at the end
            stop.wait(0.5)
