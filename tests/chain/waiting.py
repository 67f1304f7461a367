"""What the chain's tests wait for, and a process that is really gone when they go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from infra import proc

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 180  # a busy machine notices a dead TaskManager after half a minute and starts its JVM in as long


running: list[subprocess.Popen[str]] = []
"""Of this test: a fixture ends those that a failure has left."""


def nearline(env: dict[str, str], *words: str) -> subprocess.Popen[str]:
    """A verb of the near-line room; both its streams are kept."""
    command = [sys.executable, "-m", "nearline", *words]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running.append(process)
    return process


def wait_for(what: str, holds: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Until ``holds()`` is true. What it looks up and does not find (a user without a window) has not come yet."""
    give_up_at = time.monotonic() + timeout_s
    while True:
        missing = ""
        try:
            if holds():
                return
        except LookupError as error:
            missing = f" ({error!r})"
        assert time.monotonic() < give_up_at, f"never: {what}{missing}"
        time.sleep(0.25)


def everything_in(kafka: str, topic: str) -> list[Any]:
    """Every record of a topic up to now."""
    consumer = KafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False)
    try:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found: list[Any] = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for batch in consumer.poll(timeout_ms=500).values():
                found += batch
        return found
    finally:
        consumer.close()


def kill(pid: int) -> None:
    """Kill -9. It returns when the process is gone: one that still dies counts as running, and is not started again."""
    os.kill(pid, signal.SIGKILL)
    wait_for("the process is gone", lambda: proc.started(pid) is None)
