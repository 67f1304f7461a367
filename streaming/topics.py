"""The three topics, made where they are missing.

This environment has no Kafka client of its own: the admin client inside the Flink connector's jar does it, in the
Java process that PyFlink starts anyway.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from schemas.topics import missing_topics

SHADED = "org.apache.flink.kafka.shaded.org.apache.kafka.clients.admin"
TIMEOUT_S = 20


def ensure_topics(jvm: Any, kafka: str) -> list[str]:
    """Create the topics that are missing, with the broker's own replication; returns the names of those made.

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
        made = missing_topics(set(admin.listTopics().names().get(TIMEOUT_S, seconds)))
        some = jvm.java.util.Optional
        requests = [
            admin_package.NewTopic(name, some.of(topic.num_partitions), some.empty()).configs(dict(topic.settings))
            for name, topic in made.items()
        ]
        results = admin.createTopics(requests).values()
        return [name for name in made if _created(results.get(name), seconds)]
    finally:
        admin.close()


def _created(result: Any, seconds: Any) -> bool:
    try:
        result.get(TIMEOUT_S, seconds)
    except Py4JJavaError as error:
        if "TopicExistsException" not in str(error.java_exception):
            raise
        return False  # somebody else was faster
    return True
