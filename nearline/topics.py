"""The topics between the gateway, the stream job and the worker."""

from __future__ import annotations

from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError

from schemas.errors import StoreError
from schemas.topics import Topic, missing_topics


def ensure_topics(bootstrap: str) -> list[str]:
    """Create the topics that are missing, with the broker's own replication; returns their names.

    A topic that is there is left as it is. Raises ``StoreError`` when the broker does not answer or refuses.
    """
    try:
        admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            missing = missing_topics(set(admin.list_topics()))
            return [name for name, topic in missing.items() if _create(admin, name, topic)]
        finally:
            admin.close()
    except KafkaError as error:
        raise StoreError(
            f"Kafka failed: {error}", where=f"topics at {bootstrap}", mend="See `./beforehand status`."
        ) from None


def _create(admin: Any, name: str, topic: Topic) -> bool:
    settings = {"num_partitions": topic.num_partitions, "configs": dict(topic.settings)}
    try:
        admin.create_topics({name: settings}, wait_for_metadata=True)
    except TopicAlreadyExistsError:  # somebody else was faster
        return False
    return True
