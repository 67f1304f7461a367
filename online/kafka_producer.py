"""The outbox's producer over kafka-python. The package is imported when a broker is named, not before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from online.outbox import Outbox
from schemas.errors import StoreError

BLOCK_MS = 2000
LINGER_MS = 20
log = logging.getLogger(__name__)
MEND = "Is Kafka up? See `./beforehand status`."


def kafka_outbox(bootstrap: str | None) -> Outbox | None:
    """The outbox to this broker; None when none is named or kafka-python is not installed."""
    if not bootstrap:
        return None
    if find_spec("kafka") is None:
        log.warning("POST /v1/events is off: kafka-python is not installed")
        return None
    return Outbox(lambda: KafkaProducer(bootstrap))


class KafkaProducer:
    """All in-sync replicas confirm each record. One that is sent twice is one event, so the broker need not count."""

    def __init__(self, bootstrap: str) -> None:
        """Raises StoreError when no broker answers."""
        self._where = bootstrap
        kafka: Any = import_module("kafka")
        self._errors: type[Exception] = import_module("kafka.errors").KafkaError
        try:
            self._producer: Any = kafka.KafkaProducer(
                bootstrap_servers=bootstrap.split(","),
                acks="all",
                enable_idempotence=False,  # a lost sequence would end this producer for good
                compression_type="lz4",
                linger_ms=LINGER_MS,
                max_block_ms=BLOCK_MS,
            )
        except (self._errors, OSError) as error:
            raise StoreError(f"Kafka can't be reached: {error}", where=bootstrap, mend=MEND) from None

    def send(self, topic: str, key: bytes, value: bytes, settled: Callable[[bool], None]) -> None:
        """As ``online.outbox.Producer`` says."""
        try:
            future = self._producer.send(topic, key=key, value=value)
            future.add_callback(_saying(settled, confirmed=True)).add_errback(_saying(settled, confirmed=False))
        except self._errors as error:
            raise StoreError(f"Kafka takes nothing: {error}", where=self._where, mend=MEND) from None

    def close(self, timeout_s: float) -> None:
        """As ``online.outbox.Producer`` says."""
        self._producer.close(timeout=timeout_s)


def _saying(settled: Callable[[bool], None], *, confirmed: bool) -> Callable[[object], None]:
    """kafka-python says where it put the record, or why it did not."""
    return lambda _what: settled(confirmed)
