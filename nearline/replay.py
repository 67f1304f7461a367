"""Publishing events from files, as the gateway would, and waiting until they are visible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
from kafka import KafkaProducer
from kafka.errors import KafkaError

from nearline.history import Tail, is_forgotten
from schemas.cli import bar, say
from schemas.errors import DataError, StoreError
from schemas.event import Event, decode_event
from schemas.topics import EVENTS_TOPIC

SHOWN_BAD = 10
FLUSH_S = 60


@dataclass
class Outcome:
    """What was published."""

    events: int = 0
    bad: int = 0
    forgotten: int = 0  # left out: the user asked to forget it
    seconds: float = 0.0
    newest: dict[str, int] = field(default_factory=dict[str, int])  # user → newest event time, ms

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds if self.seconds else 0.0


class _User(msgspec.Struct):
    user_id: str = ""


def lines(paths: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Where (``file:line``) and bytes of every line that is not blank. Raises ``DataError`` for an unreadable file."""
    for path in paths:
        name = str(path).encode(errors="backslashreplace").decode()  # a name that is not UTF-8 can be told as well
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if raw := line.strip():
                        yield f"{name.rpartition('/')[2]}:{number}", raw
        except OSError as error:
            raise DataError(f"can't be read: {error.strerror}", where=name, mend="Check the path.") from None


def sample_users(paths: Sequence[Path], count: int) -> set[str]:
    """``count`` of the users in the files, always the same ones for the same files."""
    users: set[str] = set()
    decoder = msgspec.json.Decoder(_User)
    for _, raw in lines(paths):
        try:
            users.add(decoder.decode(raw).user_id)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # reported when it is published
    return set(nsmallest(count, users - {""}, key=lambda user: (crc32(user.encode()), user)))


def publish(
    bootstrap: str,
    paths: Sequence[Path],
    *,
    rate: float | None,
    before_send: Callable[[str, int], None] | None = None,
    forgotten: Mapping[str, int] = {},
    window: int | None = None,
) -> Outcome:
    """Send every event of the files to the topic ``events``, keyed by user, in order, at ``rate`` a second.

    ``rate`` None is as fast as the broker takes them. ``before_send`` is called with user and event time. A bad line
    is reported by its number, counted and left out. ``forgotten`` (user → event time, ms) leaves out what users asked
    to forget. With ``window`` only each user's newest so many events are sent, user by user (``nearline.history``).

    Raises:
        StoreError: the broker does not answer or does not take an event.
    """
    outcome, failed = Outcome(), list[BaseException]()
    total = sum(1 for _ in lines(paths))
    begun = time.monotonic()
    try:
        producer = open_producer(bootstrap)
        try:
            with bar() as progress:
                task = progress.add_task("events", total=total)
                for user_id, at, raw in _to_send(_good(paths, outcome, forgotten), window):
                    _pace(begun, outcome.events, rate)
                    if before_send:
                        before_send(user_id, at)
                    producer.send(EVENTS_TOPIC, raw, user_id.encode()).add_errback(failed.append)
                    outcome.events += 1
                    outcome.newest[user_id] = max(at, outcome.newest.get(user_id, 0))
                    if outcome.events % 64 == 0:
                        progress.update(task, completed=outcome.events + outcome.bad + outcome.forgotten)
                    if failed:
                        break
            producer.flush(timeout=FLUSH_S)
        finally:
            producer.close(timeout=5)
    except KafkaError as error:
        failed.append(error)
    if failed:
        raise StoreError(
            f"Kafka did not take the events: {failed[0]}", where=EVENTS_TOPIC, mend="See `./beforehand status`."
        )
    outcome.seconds = time.monotonic() - begun
    return outcome


def _to_send(events: Iterator[tuple[Event, bytes]], window: int | None) -> Iterator[tuple[str, int, bytes]]:
    if window is None:
        yield from ((event.user_id, event.at, raw) for event, raw in events)
    else:
        tail = Tail(window)
        for event, raw in events:
            tail.add(event, raw)
        yield from tail


def _good(paths: Sequence[Path], outcome: Outcome, forgotten: Mapping[str, int]) -> Iterator[tuple[Event, bytes]]:
    for where, raw in lines(paths):
        try:
            event = decode_event(raw, where)
            if is_forgotten(event, forgotten):
                outcome.forgotten += 1
            else:
                yield event, raw
        except DataError as error:
            outcome.bad += 1
            if outcome.bad <= SHOWN_BAD:
                say(f"left out: {error}")
            elif outcome.bad == SHOWN_BAD + 1:
                say("more bad lines are counted only")


def _pace(begun: float, sent: int, rate: float | None) -> None:
    if rate is not None:
        ahead_s = begun + sent / rate - time.monotonic()
        if ahead_s > 0.001:
            time.sleep(ahead_s)


def open_producer(bootstrap: str) -> Any:
    """A ``KafkaProducer`` for many records: waits for all replicas, sends in compressed batches."""
    return KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        compression_type="lz4",
        linger_ms=5,
        batch_size=64 * 1024,
        metrics_enabled=False,
    )
