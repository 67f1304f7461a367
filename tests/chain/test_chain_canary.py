"""A canary through a real Kafka, Redis, worker and look-up service: it begins, grows, is watched and ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from kafka import KafkaProducer
from waiting import wait_for

from infra.paths import Layout
from infra.stack import Stack
from infra.watching import Bounds, Watch
from nearline.topics import ensure_topics
from schemas.canary import in_share
from schemas.keys import state_key
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import MANIFEST, Manifest, content_id, load_private_key, write_manifest
from schemas.state import decode_state
from schemas.topics import WINDOWS_TOPIC
from schemas.window import Window, WindowEvent

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
KNOWN = [f"k{n}" for n in range(80)]
NEW = [f"n{n}" for n in range(40)]  # without a state


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("canary") / "state")
    stack.up(("redis", "kafka"))
    yield stack
    stack.down()


@pytest.fixture(scope="module")
def env(stack: Stack) -> dict[str, str]:
    state = stack.layout.state
    return {
        **os.environ,
        **stack.environment(),
        "BEFOREHAND_STATE": str(state),
        "BEFOREHAND_REGISTRY": f"sqlite:///{state / 'registry.db'}",
        "BEFOREHAND_VERIFY_KEY": str(FIXTURES / "release.pub"),
    }


@pytest.fixture(scope="module")
def registry(env: dict[str, str]) -> Registry:
    return Registry(env["BEFOREHAND_REGISTRY"])


def publish(registry: Registry, folder: Path) -> str:
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    registry.publish(ReleaseRow(manifest.id, str(folder), "h", {}, Status.FUTURE, manifest.made_at), why="test")
    return manifest.id


def next_release(folder: Path, parent: str) -> Path:
    shutil.copytree(FIXTURES / "release", folder)
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    content = msgspec.structs.replace(manifest.content, parents=[parent])
    key = load_private_key(FIXTURES / "release.pem")
    write_manifest(folder, msgspec.structs.replace(manifest, id=content_id(content), content=content), key)
    return folder


def put_windows(env: dict[str, str]) -> None:
    producer, now = KafkaProducer(bootstrap_servers=env["BEFOREHAND_KAFKA"]), int(time.time() * 1000)
    for n, user in enumerate(KNOWN):
        events = [WindowEvent(f"{user}-{k}", f"item-{(n + k) % 60:03d}", "click", now - k) for k in range(6)]
        producer.send(WINDOWS_TOPIC, msgspec.json.encode(Window(events, now)), user.encode())
    producer.flush()
    producer.close()


@pytest.fixture(scope="module")
def url(env: dict[str, str], registry: Registry, stack: Stack) -> Iterator[str]:
    """The service; it and a worker run, and the fixture release is current."""
    registry.promote(publish(registry, FIXTURES / "release"), why="test")
    ensure_topics(env["BEFOREHAND_KAFKA"])
    put_windows(env)
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


def states(env: dict[str, str]) -> dict[str, str]:
    raws = redis.Redis.from_url(env["BEFOREHAND_REDIS"]).mget([state_key(user) for user in KNOWN])
    return {user: decode_state(raw).release for user, raw in zip(KNOWN, raws, strict=True) if raw}


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)


def ask(url: str, users: list[str]) -> dict[str, str]:
    """Which release answered each user; every answer has items."""
    body = json.dumps([{"user_id": user, "k": 5, "budget_ms": 5000} for user in users]).encode()
    request = urllib.request.Request(f"{url}/v1/recall:batch", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        answers = json.load(answer)
    assert all(one["items"] for one in answers)
    return {one["user_id"]: one["release"] for one in answers}


def test_a_canary_begins_grows_is_watched_and_ends(
    env: dict[str, str], url: str, registry: Registry, tmp_path: Path
) -> None:
    current = get(f"{url}/v1/releases")["current"]
    wait_for("everybody encoded", lambda: states(env) == dict.fromkeys(KNOWN, current))
    tried = publish(registry, next_release(tmp_path / "next", "one"))
    for share in (0.2, 0.5):
        registry.canary(tried, share, why="test")
        wanted = {user: tried if in_share(user, tried, share) else current for user in [*KNOWN, *NEW]}
        wait_for("the worker", lambda wanted=wanted: states(env) == {user: wanted[user] for user in KNOWN})
        wait_for("the service", lambda share=share: get(f"{url}/v1/releases")["canary_share"] == share)
        wait_for("the cache", lambda wanted=wanted: ask(url, [*KNOWN, *NEW]) == wanted)

    stop, lost = threading.Event(), list[Exception]()

    def traffic() -> None:
        try:
            while not stop.wait(0.2):
                ask(url, [*KNOWN, *NEW])
        except (OSError, AssertionError, ValueError) as error:
            lost.append(error)

    asking = threading.Thread(target=traffic)
    asking.start()
    try:
        found = Watch(url, tried, 4.0, canary=True, bounds=Bounds(min_answers=20)).run()
    finally:
        stop.set()
        asking.join()
    assert not lost
    assert found["judged"], found
    assert found["by_release"]["own"]["answers"] and found["by_release"]["others"]["answers"]

    registry.end_canary(why="test")
    wait_for("its users come back", lambda: states(env) == dict.fromkeys(KNOWN, current))
    wait_for("and so do those without a state", lambda: set(ask(url, [*KNOWN, *NEW]).values()) == {current})
    assert get(f"{url}/v1/releases")["canary_share"] == 0


def test_a_canary_that_does_not_load_has_no_users(
    env: dict[str, str], url: str, registry: Registry, tmp_path: Path
) -> None:
    current = registry.pointer().current
    wait_for("everybody encoded", lambda: states(env) == dict.fromkeys(KNOWN, current))
    folder = next_release(tmp_path / "broken", "another")
    broken = publish(registry, folder)
    (folder / "decoder.onnx").write_bytes(b"damaged")
    registry.canary(broken, 1.0, why="test")
    try:
        wait_for("it is told", lambda: broken in get(f"{url}/readyz")["problems"])
        assert get(f"{url}/readyz")["ready"]
        assert get(f"{url}/v1/releases")["load_failures"] >= 1
        assert set(ask(url, [*KNOWN, *NEW]).values()) == {current}
        assert "does not load it" in Watch(url, broken, 4.0, canary=True).run()["problem"]
        assert set(states(env).values()) == {current}
    finally:
        registry.end_canary(why="test")
