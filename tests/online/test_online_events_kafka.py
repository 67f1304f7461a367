"""Events through the real service to a real broker, which goes away and comes back."""

from __future__ import annotations

import json
import time

import httpx
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic
from online_values import until_true
from test_online_serve import home, start, stop  # noqa: F401 - home is a fixture

from infra.stack import Stack
from schemas.event import decode_event
from schemas.topics import EVENTS_TOPIC

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    stack = Stack(tmp_path_factory.mktemp("stack"))
    bootstrap = stack.up(("kafka",))["BEFOREHAND_KAFKA"]
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(EVENTS_TOPIC, num_partitions=4, replication_factor=1)])
    admin.close()
    yield stack, bootstrap
    stack.down()


def read(bootstrap: str) -> list[tuple[bytes, str, str]]:
    """Key, user and event id of every record, each partition's in its order."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        partitions = [TopicPartition(EVENTS_TOPIC, number) for number in consumer.partitions_for_topic(EVENTS_TOPIC)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for batch in consumer.poll(timeout_ms=500).values():
                events = [(record.key, decode_event(record.value)) for record in batch]
                found += [(key, event.user_id, event.event_id) for key, event in events]
        return found
    finally:
        consumer.close()


def events(first: int, count: int) -> list[dict]:
    at = int(time.time() * 1000)
    return [
        {"event_id": f"e{n}", "user_id": f"user {n % 7} 🧼", "item_id": "i", "kind": "click", "at": at}
        for n in range(first, first + count)
    ]


def metric(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"beforehand_events_{name} ")).split()[1])


def test_what_was_accepted_arrives_also_after_the_broker_was_away(stack, home, monkeypatch):  # noqa: F811
    services, bootstrap = stack
    monkeypatch.setenv("BEFOREHAND_KAFKA", bootstrap)
    process = start(home)
    try:
        url = json.loads((home / "run" / "online" / "address.json").read_text())["url"]
        for first in range(0, 300, 100):
            assert httpx.post(f"{url}/v1/events", json=events(first, 100)).status_code == 202
        until_true(lambda: metric(url, "waiting_bytes") == 0)
        found = read(bootstrap)
        assert sorted(event_id for _, _, event_id in found) == sorted(f"e{n}" for n in range(300))
        assert all(key == user.encode() for key, user, _ in found)
        for user in {user for _, user, _ in found}:
            numbers = [int(event_id[1:]) for _, whose, event_id in found if whose == user]
            assert numbers == sorted(numbers)

        services.down(("kafka",))
        big = {"page": "x" * 30_000}  # the bound is reached soon
        accepted, sent, refused = set(), 300, 0
        while not refused:
            many = [event | {"context": big} for event in events(sent, 50)]
            answer = httpx.post(f"{url}/v1/events", json=many, timeout=20)
            body = answer.json()
            assert answer.status_code == (503 if body["no_room"] else 202)
            accepted |= {event["event_id"] for event in many[: body["accepted"]]}
            refused += body["no_room"]
            sent += 50
            assert sent < 5000, "the buffer has no bound"
        assert metric(url, "waiting_bytes") > 0
        assert metric(url, "no_room_total") == refused
        assert httpx.get(f"{url}/healthz").status_code == 200

        services.up(("kafka",))
        until_true(lambda: metric(url, "waiting_bytes") == 0, limit_s=90)
        assert metric(url, "lost_total") == 0
        assert {event_id for _, _, event_id in read(bootstrap)} == accepted | {f"e{n}" for n in range(300)}
    finally:
        assert stop(process) == 0
