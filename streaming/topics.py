"""The three topics, made where they are missing.

This environment has no Kafka client of its own: the admin client inside the Flink connector's jar does it, in the
Java process that PyFlink starts anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from schemas.window import DEAD_LETTERS_TOPIC, EVENTS_TOPIC, WINDOWS_TOPIC

SHADED = "org.apache.flink.kafka.shaded.org.apache.kafka.clients.admin"
TIMEOUT_S = 20


class Topic(msgspec.Struct, frozen=True):
    """How a topic is made; one that is there already is left as it is."""

    num_partitions: int
    settings: Mapping[str, str] = {}


TOPICS: Mapping[str, Topic] = {
    # The future bound and the freshness are measured from the broker's clock, not from the senders'.
    EVENTS_TOPIC: Topic(4, {"message.timestamp.type": "LogAppendTime"}),
    WINDOWS_TOPIC: Topic(
        4,
        {
            "cleanup.policy": "compact",
            # The newest segment is never compacted, so segments are small.
            "segment.bytes": str(64 * 1024 * 1024),
            "min.cleanable.dirty.ratio": "0.2",
            # What a user asked to forget is gone within a day.
            "max.compaction.lag.ms": str(24 * 3_600_000),
        },
    ),
    DEAD_LETTERS_TOPIC: Topic(1),
}


def missing(there: set[str]) -> dict[str, Topic]:
    """The topics that a broker with these topics lacks."""
    return {name: topic for name, topic in TOPICS.items() if name not in there}


def ensure_topics(jvm: Any, kafka: str) -> list[str]:
    """Create the topics that are missing, with the broker's own replication; returns their names.

    ``jvm`` is PyFlink's, with the connector's jar loaded. Java's errors pass through.
    """
    admin_package = jvm
    for part in SHADED.split("."):
        admin_package = getattr(admin_package, part)
    properties = jvm.java.util.Properties()
    properties.setProperty("bootstrap.servers", kafka)
    properties.setProperty("request.timeout.ms", str(TIMEOUT_S * 500))
    properties.setProperty("default.api.timeout.ms", str(TIMEOUT_S * 1000))
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    admin = admin_package.AdminClient.create(properties)
    try:
        made = missing(set(admin.listTopics().names().get(TIMEOUT_S, seconds)))
        some = jvm.java.util.Optional
        requests = [
            admin_package.NewTopic(name, some.of(topic.num_partitions), some.empty()).configs(dict(topic.settings))
            for name, topic in made.items()
        ]
        admin.createTopics(requests).all().get(TIMEOUT_S, seconds)
    finally:
        admin.close()
    return list(made)
