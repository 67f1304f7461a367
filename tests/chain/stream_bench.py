"""Broker, cluster and the stream's verbs for the chain's tests; events, and the window rule in its plainest form."""

from __future__ import annotations

import json
import os
import random
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from kafka import KafkaProducer
from kafka.errors import KafkaError
from waiting import everything_in, wait_for

from infra.paths import ROOT
from infra.stack import Stack
from schemas.window import DeadLetter, Window, decode_window

WINDOW = 10  # smaller than the plan's, so that events are pushed out
MAX_RECORD = 8 * 1024 * 1024
AT = 1_262_304_000_000  # 2010: event times may be historic


class Bench:
    """A broker, a cluster and the verbs, in a state folder of their own."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.stack = Stack(state)
        self.kafka = self.stack.up(("kafka", "flink"))["BEFOREHAND_KAFKA"]
        self.producer = KafkaProducer(bootstrap_servers=self.kafka, max_request_size=MAX_RECORD)

    def stream(self, *arguments: str) -> dict[str, Any]:
        """Run ``./beforehand stream …``; its JSON result."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")}
        environ["BEFOREHAND_STATE"] = str(self.state)
        command = [str(ROOT / "beforehand"), "stream", *arguments, "--json"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def counted(self) -> int:
        """The records that the job says it has read, as soon as it says any."""
        said = [0]

        def told() -> bool:
            said.append(self.stream("status")["records"] or 0)
            return said[-1] > 0

        wait_for("the counts are told", told)
        return said[-1]

    def close(self) -> None:
        """End it whatever state it is in; what the producer could not send is not waited for."""
        self.stack.down()
        with suppress(KafkaError):
            self.producer.close(timeout=0)

    def deploy(self, *arguments: str) -> dict[str, Any]:
        return self.stream("deploy", "--set", f"model.window={WINDOW}", *arguments)

    def send(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            self.producer.send("events", key=event["user_id"].encode(), value=json.dumps(event).encode())
        self.producer.flush()

    def read(self, topic: str) -> list[Any]:
        """Every record of a topic up to now."""
        return everything_in(self.kafka, topic)

    def pid(self, service: str, main_class: str = "") -> int:
        """Of the service's process whose command line names ``main_class``."""
        pids = next(one for one in self.stack.status() if one.name == service).pids
        return next(pid for pid in pids if main_class.encode() in Path(f"/proc/{pid}/cmdline").read_bytes())

    def windows(self) -> dict[str, Window]:
        """The newest of every user; a tombstone takes the user away."""
        newest = {record.key.decode(): record.value for record in self.read("windows")}
        return {user: decode_window(value) for user, value in newest.items() if value is not None}

    def dead_letters(self) -> list[DeadLetter]:
        return [msgspec.json.decode(record.value, type=DeadLetter) for record in self.read("dead-letters")]


def event(user: str, number: int, at: int) -> dict[str, Any]:
    kinds = ("impression", "click", "cart", "purchase")
    made = {"event_id": f"{user}-{number}", "user_id": user, "item_id": f"i{number % 17}", "kind": kinds[number % 4]}
    return {**made, "at": at}


def disordered(rng: random.Random, users: list[str], num_each: int) -> list[dict[str, Any]]:
    """Ties of three, 15 % out of order, a tenth delivered twice, some when they were pushed out already."""
    events = [event(user, number, AT + number // 3) for number in range(num_each) for user in users]
    for place in rng.sample(range(len(events)), len(events) * 15 // 100):
        other = rng.randrange(len(events))
        events[place], events[other] = events[other], events[place]
    return events + rng.sample(events, len(events) // 10)


def naive(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The window rule in its plainest form, for every user."""
    users: dict[str, dict[str, dict[str, Any]]] = {}
    for one in events:
        users.setdefault(one["user_id"], {}).setdefault(one["event_id"], one)
    windows = {}
    for user, mine in users.items():
        ordered = sorted(mine.values(), key=lambda one: (one["at"], one["event_id"]), reverse=True)
        windows[user] = [{key: one[key] for key in ("event_id", "item_id", "kind", "at")} for one in ordered[:WINDOW]]
    return windows


def settle_on(bench: Bench, expected: dict[str, Any]) -> None:
    def found() -> dict[str, Any]:
        windows = bench.windows()
        return {user: msgspec.to_builtins(windows[user].events) for user in expected if user in windows}

    wait_for("the windows equal the reference", lambda: found() == expected)
