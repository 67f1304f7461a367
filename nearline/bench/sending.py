"""Sends the replay, as fast as the broker takes it or at a rate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from kafka.errors import KafkaError

from nearline.bench.traffic import Sent
from nearline.guarded import guarded
from nearline.replay import open_producer
from nearline.visibility import Watch
from schemas.cli import bar
from schemas.errors import StoreError

FLUSH_S = 120
SHOW_EVERY = 1_000


@dataclass(frozen=True)
class Sending:
    """What was sent. ``late_ms`` is how far behind its schedule the sender was, at the 99th percentile."""

    events: int
    seconds: float
    late_ms: float


def send(
    bootstrap: str,
    topic: str,
    events: Iterator[Sent],
    total: int,
    *,
    rate: float | None = None,
    watch: Watch | None = None,
) -> Sending:
    """Send every event, keyed by user; with ``rate`` each at its time, whatever became of those before.

    Raises ``StoreError`` when the broker does not take one.
    """
    failed: list[BaseException] = []
    late: list[float] = []
    count, begun = 0, time.monotonic()
    producer = guarded(lambda: open_producer(bootstrap))
    try:
        with bar() as progress:
            task = progress.add_task("events sent", total=total)
            for count, one in enumerate(events, 1):
                if rate is not None:
                    late.append(_await(begun + (count - 1) / rate))
                if watch is not None:
                    watch.sent(one.user_id, one.at)
                producer.send(topic, one.raw, one.user_id.encode()).add_errback(failed.append)
                if count % SHOW_EVERY == 0:
                    progress.update(task, completed=count)
                    if failed:
                        break
        producer.flush(timeout=FLUSH_S)
    except KafkaError as error:
        failed.append(error)
    finally:
        producer.close(timeout=5)
    if failed:
        raise StoreError(f"Kafka did not take the events: {failed[0]}", where=topic)
    return Sending(count, time.monotonic() - begun, float(np.percentile(late, 99)) * 1000 if late else 0.0)


def _await(due: float) -> float:
    """Sleep until ``due``; how late it is then, in seconds."""
    ahead = due - time.monotonic()
    if ahead > 0:
        time.sleep(ahead)
    return max(0.0, time.monotonic() - due)
