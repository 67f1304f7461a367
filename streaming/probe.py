"""Whether a new job holds the windows that the old one held.

Keyed state can't be read from outside. But an event that a window holds already changes nothing and makes the job write
the window once more: so for some users their newest event is sent again, and what comes out is compared.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from schemas.errors import StoreError
from schemas.event import Event, encode_event
from schemas.names import Kind
from schemas.topics import EVENTS_TOPIC, WINDOWS_TOPIC
from schemas.window import Window, decode_window
from streaming.windows import java_errors

KAFKA = "org.apache.flink.kafka.shaded.org.apache.kafka"
READ_BACK = 200  # records of each partition, among which the users are chosen
POLL_MS = 300


def kept(old: Window, new: Window, size: int) -> bool:
    """Whether ``new`` is what became of ``old`` in a job of windows of ``size``: newer events may have come, and pushed
    out the oldest."""
    events = {event.event_id: event for event in [*old.events, *new.events]}
    newest_first = sorted(events.values(), key=lambda one: (one.at, one.event_id), reverse=True)
    return new.events == newest_first[: len(new.events)] and len(new.events) >= min(len(old.events), size)


class Probe:
    """Reads windows and sends events through the Kafka client inside the connector's jar, in PyFlink's own Java.

    Every method raises ``StoreError`` when the broker does not answer or refuses.
    """

    def __init__(self, jvm: Any, kafka: str) -> None:
        self._jvm = jvm
        self._kafka = kafka
        package = jvm
        for part in KAFKA.split("."):
            package = getattr(package, part)
        self._package = package
        self._settings = jvm.java.util.Properties()
        self._settings.setProperty("bootstrap.servers", kafka)
        self._settings.setProperty("enable.auto.commit", "false")
        read = package.common.serialization.ByteArrayDeserializer
        with self._errors():
            self._consumer = package.clients.consumer.KafkaConsumer(self._settings, read(), read())
            self._partitions = jvm.java.util.ArrayList()
            for one in self._consumer.partitionsFor(WINDOWS_TOPIC):
                self._partitions.add(package.common.TopicPartition(WINDOWS_TOPIC, one.partition()))
            self._consumer.assign(self._partitions)

    def sample(self, num_users: int) -> dict[str, Window]:
        """The windows of some of the users who had events last."""
        with self._errors():
            found = self._newest_windows()
        windows = [(user_id, window) for user_id, window in found.items() if window is not None and window.events]
        return dict(windows[-num_users:])

    def check(self, before: Mapping[str, Window], size: int, timeout_s: float) -> None:
        """Raises ``StoreError`` when a user's window is another than before, or does not come in time."""
        with self._errors():
            for one, end in self._ends().items():
                self._consumer.seek(one, end)
            self._send_again(before)
            self._compare(dict(before), size, time.monotonic() + timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _errors(self) -> AbstractContextManager[None]:
        return java_errors(f"Kafka at {self._kafka}", "See `./beforehand status`.")

    def _newest_windows(self) -> dict[str, Window | None]:
        ends, first = self._ends(), self._consumer.beginningOffsets(self._partitions)
        for one in self._partitions:
            self._consumer.seek(one, max(first[one], ends[one] - READ_BACK))
        found: dict[str, Window | None] = {}
        while any(self._consumer.position(one) < ends[one] for one in self._partitions):
            for user_id, window in self._poll():
                found.pop(user_id, None)  # the newest last
                found[user_id] = window
        return found

    def _compare(self, waiting: dict[str, Window], size: int, deadline: float) -> None:
        while waiting:
            if time.monotonic() > deadline:
                raise StoreError(f"the new job wrote no window of {len(waiting)} users", value=next(iter(waiting)))
            for user_id, window in self._poll():
                if user_id not in waiting:
                    continue
                if window is not None and not kept(waiting[user_id], window, size):  # None: forgotten meanwhile
                    raise StoreError("the new job has another window of a user than the old one", value=user_id)
                del waiting[user_id]

    def _ends(self) -> dict[Any, int]:
        return dict(self._consumer.endOffsets(self._partitions))

    def _poll(self) -> list[tuple[str, Window | None]]:
        found: list[tuple[str, Window | None]] = []
        for record in self._consumer.poll(self._jvm.java.time.Duration.ofMillis(POLL_MS)).iterator():
            value = record.value()
            try:
                user_id = bytes(record.key()).decode()
                found.append((user_id, None if value is None else decode_window(bytes(value))))
            except (TypeError, UnicodeDecodeError, msgspec.DecodeError):
                continue  # no window: the worker makes a dead letter of it
        return found

    def _send_again(self, windows: Mapping[str, Window]) -> None:
        write = self._package.common.serialization.ByteArraySerializer
        producer = self._package.clients.producer.KafkaProducer(self._settings, write(), write())
        record = self._package.clients.producer.ProducerRecord
        try:
            for user_id, window in windows.items():
                newest = window.events[0]
                event = Event(
                    event_id=newest.event_id,
                    user_id=user_id,
                    item_id=newest.item_id,
                    kind=Kind(newest.kind),
                    at=newest.at,
                )
                producer.send(record(EVENTS_TOPIC, user_id.encode(), encode_event(event)))
        finally:
            producer.close()
