"""The whole stack for real: Kafka and Flink start, answer, survive a kill -9, and leave nothing behind."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from killing import kill

from infra import proc
from infra.health import http_json
from infra.paths import Layout
from infra.services import SERVICES
from infra.stack import Stack

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    stack = Stack(tmp_path_factory.mktemp("stack") / "state")
    stack.up()
    yield stack
    stack.down()


def one(stack, name):
    return next(status for status in stack.status() if status.name == name)


def test_everything_answers(stack):
    assert {status.state for status in stack.status()} == {"running"}
    assert set(stack.environment()) == {"BEFOREHAND_REDIS", "BEFOREHAND_KAFKA", "BEFOREHAND_FLINK"}


def test_a_second_up_changes_nothing(stack):
    before = [status.pids for status in stack.status()]
    stack.up()
    assert [status.pids for status in stack.status()] == before


def listening_addresses(pids: set[int]) -> set[str]:
    """The hex addresses on which these processes listen, from the kernel's socket tables."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                link = str(entry.readlink())
            except FileNotFoundError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
        found |= {row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}
    return found


def test_everything_listens_on_the_loopback_only(stack):
    pids = {pid for status in stack.status() for pid in status.pids}
    assert len(pids) == 4
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert listening_addresses(pids) and listening_addresses(pids) <= loopback


def test_kafka_carries_records_and_keeps_them(stack):
    address = stack.environment()["BEFOREHAND_KAFKA"]
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics(
        [NewTopic("events", num_partitions=2, replication_factor=1, topic_configs={"cleanup.policy": "compact"})]
    )
    admin.close()
    producer = KafkaProducer(bootstrap_servers=address)
    producer.send("events", key=b"u1", value=b"click").get(timeout=20)
    producer.close()
    stack.down(["kafka"])
    address = stack.up(["kafka"])["BEFOREHAND_KAFKA"]
    consumer = KafkaConsumer(
        "events", bootstrap_servers=address, group_id="readers", auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )  # fmt: skip
    record = next(iter(consumer))
    consumer.close()
    assert (record.key, record.value) == (b"u1", b"click")


def test_flink_has_its_slots_and_our_settings(stack):
    port = SERVICES["flink"](stack.layout, stack._ports()["flink"]).ports["rest"]
    overview = http_json(port, "/overview", 5)
    assert (overview["taskmanagers"], overview["slots-total"]) == (1, 4)


LONG_JOB = """
import sys
from urllib.parse import urlparse
from pyflink.common import Configuration
from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.udf import udf

address = urlparse(sys.argv[1])
config = Configuration()
config.set_string("execution.target", "remote")
config.set_string("rest.address", address.hostname)
config.set_string("rest.port", str(address.port))
tables = TableEnvironment.create(
    EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(config).build()
)
tables.execute_sql("create table numbers (a bigint) with ('connector'='datagen','rows-per-second'='10')")
tables.execute_sql("create table nowhere (a bigint) with ('connector'='blackhole')")
tables.create_temporary_function("increment", udf(lambda x: x + 1, result_type=DataTypes.BIGINT()))
tables.execute_sql("insert into nowhere select increment(a) from numbers")
"""


def test_a_killed_taskmanager_is_told_mended_and_leaves_nothing(stack):
    """kill -9 of a TaskManager leaves its Python workers behind; the stack must still find them."""
    python = Layout.current().env_python("streaming")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    submit = [python, "-c", LONG_JOB, stack.environment()["BEFOREHAND_FLINK"]]
    subprocess.run(submit, check=True, env={**os.environ, "PATH": path})
    taskmanager = next(part for part in stack._parts("flink") if "TaskManager" in part.name)
    deadline = time.monotonic() + 60
    while len(workers := taskmanager.family()) < 2:
        assert time.monotonic() < deadline, "no Python worker came"
        time.sleep(0.2)

    kill(taskmanager.pid)
    status = one(stack, "flink")
    assert status.state == "crashed" and "TaskManager" in (status.detail or "")

    stack.up()
    assert one(stack, "flink").state == "running"
    assert not [pid for pid in workers if proc.started(pid)], "workers of the killed TaskManager live on"

    families = [part.family() for name in SERVICES for part in stack._parts(name)]
    assert set(stack.down()) == set(SERVICES)
    assert not [pid for family in families for pid in family if proc.started(pid)]
    assert stack.down() == []
