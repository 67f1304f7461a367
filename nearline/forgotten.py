"""The topic of forgotten users, and what Kafka still holds of one.

The topic is the list that everything else obeys: it is compacted and never expires. The stream job reads it beside the
events, workers read it when they start, and history is filtered by it before it is sent again.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import TopicPartition

from nearline.guarded import guarded
from schemas.cli import say
from schemas.errors import DataError
from schemas.event import Forget, decode_forget, encode_forget
from schemas.topics import FORGOTTEN_TOPIC, WINDOWS_TOPIC
from schemas.window import decode_window

SEND_TIMEOUT_S = 20
T = TypeVar("T")


def ask_to_forget(bootstrap: str, request: Forget) -> None:
    """Put a request into the topic; it is there for good when this returns. Raises ``StoreError``."""
    producer: Any = guarded(lambda: KafkaProducer(bootstrap_servers=bootstrap, acks="all"))
    try:
        sent = guarded(lambda: producer.send(FORGOTTEN_TOPIC, encode_forget(request), request.user_id.encode()))
        guarded(lambda: sent.get(timeout=SEND_TIMEOUT_S))
    finally:
        producer.close(timeout=5)


def read_forgotten(bootstrap: str) -> dict[str, int]:
    """Every forgotten user, with the newest event time (ms) up to which nothing may be kept. Raises ``StoreError``."""
    found: dict[str, int] = {}
    with _reader(bootstrap, FORGOTTEN_TOPIC) as consumer:
        ends: Mapping[Any, int] = guarded(lambda: consumer.end_offsets(list(consumer.assignment())))
        guarded(lambda: consumer.seek_to_beginning(*ends))
        while any(guarded(lambda one=one: consumer.position(one)) < end for one, end in ends.items()):
            for record in _polled(consumer, 0.5):
                if record.value is None:
                    continue
                try:
                    request = decode_forget(record.value)
                except DataError as error:
                    say(f"left out: {error}")  # the stream job makes a dead letter of it
                else:
                    found[request.user_id] = max(request.at, found.get(request.user_id, 0))
    return found


class WindowWatch:
    """Reads what the stream job writes from the moment this is made."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def wait_clean(self, user_id: str, at: int, timeout_s: float) -> bool:
        """Wait for a window of the user without anything up to ``at``; False when none came in time."""
        key, deadline = user_id.encode(), time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for record in _polled(self._consumer, 0.2):
                if record.key == key and _is_clean(record.value, at):
                    return True
        return False


@contextmanager
def watch_windows(bootstrap: str) -> Generator[WindowWatch, None, None]:
    """A ``WindowWatch`` from now on. Raises ``StoreError``."""
    with _reader(bootstrap, WINDOWS_TOPIC) as consumer:
        partitions = list(consumer.assignment())
        guarded(lambda: consumer.seek_to_end(*partitions))
        for one in partitions:  # the end is looked up at the first use: use it now
            guarded(lambda one=one: consumer.position(one))
        yield WindowWatch(consumer)


def topic_settings(bootstrap: str, topic: str) -> dict[str, str]:
    """The topic's settings as the broker applies them. Raises ``StoreError``."""
    admin: Any = guarded(lambda: KafkaAdminClient(bootstrap_servers=bootstrap))
    try:
        told = guarded(
            lambda: admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
        )
    finally:
        admin.close()
    return {key: str(one["value"]) for key, one in told["topic"][topic].items()}


def _is_clean(value: bytes | None, at: int) -> bool:
    if value is None:
        return True
    try:
        return all(event.at > at for event in decode_window(value).events)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


@contextmanager
def _reader(bootstrap: str, topic: str) -> Generator[Any, None, None]:
    consumer: Any = guarded(lambda: KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False))
    try:
        numbers: set[int] = guarded(lambda: consumer.partitions_for_topic(topic)) or set[int]()
        consumer.assign([TopicPartition(topic, number) for number in sorted(numbers)])
        yield consumer
    finally:
        consumer.close()


def _polled(consumer: Any, timeout_s: float) -> Iterator[Any]:
    for batch in guarded(lambda: consumer.poll(timeout_ms=int(timeout_s * 1000))).values():
        yield from batch
