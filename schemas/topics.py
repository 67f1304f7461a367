"""The Kafka topics and how they are made. A topic that is there already is left as it is."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

EVENTS_TOPIC = "events"
WINDOWS_TOPIC = "windows"
DEAD_LETTERS_TOPIC = "dead-letters"
FORGOTTEN_TOPIC = "forgotten"
CATALOGUE_TOPIC = "catalogue"


class Topic(msgspec.Struct, frozen=True):
    """How a topic is made; replication is the broker's own default."""

    num_partitions: int
    settings: Mapping[str, str] = {}


TOPICS: Mapping[str, Topic] = {
    # The bound on the future and the freshness are measured from the broker's clock, not from the senders'.
    EVENTS_TOPIC: Topic(4, {"message.timestamp.type": "LogAppendTime"}),
    WINDOWS_TOPIC: Topic(
        4,
        {
            "cleanup.policy": "compact",
            # The newest segment is never compacted, and a new release reads the topic from its start: small segments.
            "segment.bytes": str(64 * 1024 * 1024),
            "min.cleanable.dirty.ratio": "0.2",
            # What a user asked to forget is gone within a day.
            "max.compaction.lag.ms": str(24 * 3_600_000),
        },
    ),
    DEAD_LETTERS_TOPIC: Topic(1),
    # Compacted and never expired: a replay or a rebuild of any age must know who was forgotten.
    FORGOTTEN_TOPIC: Topic(1, {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}),
    # Compacted and never expired: it is the last word on every item that it names, also for the builds to come.
    CATALOGUE_TOPIC: Topic(1, {"cleanup.policy": "compact"}),
}


def missing_topics(there: set[str]) -> dict[str, Topic]:
    """The topics that a broker with these topics lacks."""
    return {name: topic for name, topic in TOPICS.items() if name not in there}
