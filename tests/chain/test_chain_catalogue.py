"""Item changes through a real Kafka, the offline tier's insertion, a worker, Redis and the service.

New items are recalled by users near them, withdrawn ones by nobody; nobody is encoded again for it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import redis
from kafka import KafkaProducer
from waiting import everything_in, nearline, wait_for

from infra.paths import Layout
from infra.stack import Stack
from nearline.topics import ensure_topics
from schemas.item_change import Change, ItemChange, encode_change
from schemas.keys import state_key
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import CATALOGUE, Catalogue, Manifest
from schemas.state import decode_state
from schemas.topics import CATALOGUE_TOPIC, DEAD_LETTERS_TOPIC, WINDOWS_TOPIC
from schemas.window import DeadLetter, Window, WindowEvent

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
USERS = [f"u{n}" for n in range(30)]
WIDTH = 384  # of the text encoder's vectors


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("catalogue") / "state")
    stack.up(("redis", "kafka"))
    yield stack
    stack.down()


@pytest.fixture(scope="module")
def env(stack: Stack) -> dict[str, str]:
    """The fixture release is current, and what a build keeps for insertions is there."""
    state = stack.layout.state
    (state / "keys").mkdir(parents=True)
    for name in ("release.pem", "release.pub"):
        shutil.copy(FIXTURES / name, state / "keys")
    manifest = msgspec.json.decode((FIXTURES / "release" / "manifest.json").read_bytes(), type=Manifest)
    shutil.copytree(FIXTURES / "release", state / "releases" / manifest.id)
    kept, draw = state / "work" / "shop" / "insert" / manifest.id, np.random.default_rng(0)
    kept.mkdir(parents=True)
    num_items = manifest.content.model.num_items
    np.save(kept / "order.npy", np.arange(num_items))
    np.save(kept / "text.npy", draw.standard_normal((num_items, WIDTH)).astype(np.float32))
    np.save(kept / "vectors.npy", draw.standard_normal((num_items, 6)).astype(np.float32))
    np.save(kept / "centroids.npy", draw.standard_normal((3, 8, 6)).astype(np.float32))
    env = {
        **os.environ,
        **stack.environment(),
        "BEFOREHAND_STATE": str(state),
        "BEFOREHAND_REGISTRY": f"sqlite:///{state / 'registry.db'}",
    }
    registry = Registry(env["BEFOREHAND_REGISTRY"])
    row = ReleaseRow(manifest.id, manifest.id, "h", {}, Status.FUTURE, manifest.made_at)
    registry.publish(row, why="test")
    registry.promote(manifest.id, why="test")
    ensure_topics(env["BEFOREHAND_KAFKA"])
    return env


def follower(env: dict[str, str]) -> subprocess.Popen[str]:
    return nearline(env, "catalogue", "follow", "--data", "shop", "--every", "1", "--json")


def stopped(process: subprocess.Popen[str]) -> dict[str, Any]:
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate()
    assert process.returncode == 0, said
    return json.loads(out)


@pytest.fixture(scope="module")
def url(env: dict[str, str], stack: Stack) -> Iterator[str]:
    online, ready = str(Layout.current().env_python("online")), stack.layout.state / "ready.json"
    commands = [
        [sys.executable, "-m", "nearline", "worker"],
        [online, "-m", "online", "serve", "--ready-file", str(ready)],
    ]
    running = [subprocess.Popen(one, cwd=ROOT, env=env, stderr=subprocess.DEVNULL) for one in commands]
    try:
        wait_for("the service", ready.exists)
        yield json.loads(ready.read_text())["url"]
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
            process.wait(40)


def put_windows(env: dict[str, str], windows: dict[str, list[str]]) -> None:
    producer, now = KafkaProducer(bootstrap_servers=env["BEFOREHAND_KAFKA"]), int(time.time() * 1000)
    for user, items in windows.items():
        events = [WindowEvent(f"{user}-{now}-{k}", item, "click", now - k) for k, item in enumerate(items)]
        producer.send(WINDOWS_TOPIC, msgspec.json.encode(Window(events, now)), user.encode())
    producer.flush()
    producer.close()


def states(env: dict[str, str]) -> dict[str, tuple[str, int]]:
    raws = redis.Redis.from_url(env["BEFOREHAND_REDIS"]).mget([state_key(user) for user in USERS])
    found = {user: decode_state(raw) for user, raw in zip(USERS, raws, strict=True) if raw}
    return {user: (one.release, one.made_at) for user, one in found.items()}


def ask(url: str, users: list[str]) -> list[dict[str, Any]]:
    body = json.dumps([{"user_id": user, "k": 50, "budget_ms": 5000} for user in users]).encode()
    request = urllib.request.Request(f"{url}/v1/recall:batch", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def taken_over(url: str, users: list[str]) -> set[tuple[str, str]]:
    """By which releases they are answered, and what becomes of their states."""
    return {(one["release"], one["assets"]["intent_state"]["state"]) for one in ask(url, users)}


def recalled(url: str, users: list[str]) -> set[str]:
    return {item["item_id"] for answer in ask(url, users) for item in answer["items"]}


def current(env: dict[str, str]) -> tuple[str, Path]:
    row = Registry(env["BEFOREHAND_REGISTRY"]).current()
    assert row is not None
    return row.id, Path(env["BEFOREHAND_STATE"]) / "releases" / row.path


def send(env: dict[str, str], url: str, tmp_path: Path, *changes: ItemChange) -> dict[str, Any]:
    """Through the operator's verb, which returns when the service answers with them."""
    (tmp_path / "changes.jsonl").write_bytes(b"".join(encode_change(one) + b"\n" for one in changes) + b"{bad\n")
    told = nearline(env, "catalogue", "send", str(tmp_path / "changes.jsonl"), "--wait", "--url", url, "--json")
    out, said = told.communicate()
    assert told.returncode == 0, said
    return json.loads(out)


def change(item: str, what: Change) -> ItemChange:
    return ItemChange(item_id=item, change=what, at=int(time.time() * 1000), title=f"Title of {item}", category="tea")


def test_new_items_are_recalled_and_withdrawn_ones_never(env: dict[str, str], url: str, tmp_path: Path) -> None:
    base, _ = current(env)
    put_windows(env, {user: [f"item-{(n + k) % 60:03d}" for k in range(5)] for n, user in enumerate(USERS)})
    wait_for("everybody encoded", lambda: {one for one, _ in states(env).values()} == {base} and len(states(env)) == 30)
    before = states(env)
    following = follower(env)
    producer = KafkaProducer(bootstrap_servers=env["BEFOREHAND_KAFKA"])
    producer.send(CATALOGUE_TOPIC, b'{"item_id":"bad"}', b"bad").get(10)
    producer.close()
    sent = send(env, url, tmp_path, change("new-1", Change.ADDED), change("new-2", Change.ADDED))
    assert (sent["changes"], sent["bad"]) == (2, 1)

    grown, folder = current(env)
    assert grown != base
    # A busy machine may not read Redis in time: then it is asked again.
    wait_for("all are answered by their states", lambda: taken_over(url, USERS) == {(grown, "FRESH")})
    assert states(env) == before, "nobody was encoded again"

    catalogue = msgspec.msgpack.decode((folder / CATALOGUE).read_bytes(), type=Catalogue)
    new = catalogue.item_ids.index("new-1")
    lists = np.load(folder / "arrays" / "neighbour_items.npy")
    near = [catalogue.item_ids[n] for n in np.flatnonzero((lists == new).any(1))][:5]
    assert near

    def recalled_after_an_event() -> bool:
        # The worker takes the grown release up seconds after the service; a state of before knows no new neighbours.
        put_windows(env, {"u0": near})
        return "new-1" in recalled(url, ["u0"])

    wait_for("the new item is recalled", recalled_after_an_event)

    # Those in everybody's lists: one at the end of somebody's may stay out of all of them when it comes back.
    shown = Counter(item["item_id"] for answer in ask(url, USERS) for item in answer["items"])
    gone = [*[item for item, _ in shown.most_common() if not item.startswith("new-")][:3], "new-1"]
    (stranger,) = ask(url, ["stranger"])
    gone += [item["item_id"] for item in stranger["items"] if item["item_id"] not in gone][:1]
    send(env, url, tmp_path, *(change(item, Change.WITHDRAWN) for item in gone))
    for _ in range(5):
        assert not recalled(url, [*USERS, "stranger"]) & set(gone)
    earlier = states(env)["u0"]
    put_windows(env, {"u0": [*gone, *near]})  # they stay in histories
    # By the grown release or by the one before it, whichever the worker has by then: both serve.
    wait_for("encoded", lambda: states(env)["u0"] != earlier)
    assert not recalled(url, ["u0"]) & set(gone)

    # Killed between reading and committing: what it read comes again, and what came meanwhile comes late.
    following.kill()
    following.wait()
    following = follower(env)
    send(env, url, tmp_path, change("new-3", Change.ADDED), change(gone[0], Change.CHANGED))
    wait_for("it is back", lambda: gone[0] in recalled(url, [*USERS, "stranger"]))
    assert not recalled(url, [*USERS, "stranger"]) & set(gone[1:])
    assert states(env).keys() == before.keys()
    assert sum(states(env)[user] != before[user] for user in USERS) == 1, "u0 alone, by its own events"
    summary = stopped(following)
    assert summary["changes"] >= 2

    # Back to what the build made, with nobody to put the changes into it: its own trie has them all.
    Registry(env["BEFOREHAND_REGISTRY"]).promote(base, why="test")
    wait_for("it answers whom it knows nothing of", lambda: ask(url, ["stranger"])[0]["release"] == base)
    assert not recalled(url, [*USERS, "stranger"]) & set(gone[1:])
    assert [letter.reason for letter in letters(env) if letter.topic == CATALOGUE_TOPIC] == ["change"]


def letters(env: dict[str, str]) -> list[DeadLetter]:
    found = everything_in(env["BEFOREHAND_KAFKA"], DEAD_LETTERS_TOPIC)
    return [msgspec.json.decode(one.value, type=DeadLetter) for one in found]
