"""The topics between the gateway, the stream job and the worker."""

from __future__ import annotations

from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError

from schemas.errors import StoreError
from schemas.window import DEAD_LETTERS_TOPIC, EVENTS_TOPIC, WINDOWS_TOPIC

PARTITIONS = 4
_WINDOW_SETTINGS = {
    "cleanup.policy": "compact",
    # Small segments: the newest one is never compacted, and a new release reads the topic from its start.
    "segment.bytes": str(64 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.2",
    "max.compaction.lag.ms": str(24 * 3_600_000),  # what a user asked to forget is gone within a day
}
TOPICS: dict[str, dict[str, Any]] = {
    # Freshness and the bound on the future are measured from the broker's clock, not from the senders'.
    EVENTS_TOPIC: {"num_partitions": PARTITIONS, "configs": {"message.timestamp.type": "LogAppendTime"}},
    WINDOWS_TOPIC: {"num_partitions": PARTITIONS, "configs": _WINDOW_SETTINGS},
    DEAD_LETTERS_TOPIC: {"num_partitions": 1},
}


def ensure_topics(bootstrap: str) -> list[str]:
    """Create the topics that are missing, with the broker's own replication; returns their names.

    A topic that is there is left as it is. Raises ``StoreError`` when the broker does not answer or refuses.
    """
    try:
        admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            there = set(admin.list_topics())
            return [name for name in TOPICS if name not in there and _create(admin, name)]
        finally:
            admin.close()
    except KafkaError as error:
        raise StoreError(
            f"Kafka failed: {error}", where=f"topics at {bootstrap}", mend="See `./beforehand status`."
        ) from None


def _create(admin: Any, name: str) -> bool:
    try:
        admin.create_topics({name: TOPICS[name]}, wait_for_metadata=True)
    except TopicAlreadyExistsError:  # somebody else was faster
        return False
    return True
