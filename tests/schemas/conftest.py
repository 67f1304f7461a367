"""Registries to try: SQLite always, PostgreSQL where a server and its driver are installed."""

import importlib.util
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.health import free_ports

BINARIES = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/local/bin"), Path("/usr/bin")]


class Postgres:
    """A server of its own on the loopback, stopped and started as a test likes."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self.binaries = folder, binaries
        self.port = free_ports({"postgres": None})["postgres"]
        # The server refuses to run as root.
        self.user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        if self.user:
            shutil.chown(folder, "postgres", "postgres")
        self._run("initdb", "-D", str(folder / "data"), "-U", "beforehand", "-A", "trust", "--no-sync")

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c fsync=off"
        data, log = str(self.folder / "data"), str(self.folder / "log")
        self._run("pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def database(self) -> str:
        name = f"b{secrets.token_hex(6)}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "beforehand", name)
        return f"postgresql://beforehand@127.0.0.1:{self.port}/{name}"

    def _run(self, program: str, *words: str) -> None:
        command = [str(self.binaries / program), *words]
        # Not through a pipe: the server that pg_ctl starts would keep it open.
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL, **self.user)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    binaries = next((folder for folder in BINARIES if (folder / "pg_ctl").exists()), None)
    if binaries is None:
        pytest.skip("no PostgreSQL server on this machine: install Debian's postgresql")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("this environment has no psycopg")
    folder = Path("/tmp") / f"beforehand-pg-{secrets.token_hex(4)}"  # a socket's path is short
    folder.mkdir(mode=0o700)
    server = Postgres(folder, binaries)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty registry of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'registry.db'}"
    return request.getfixturevalue("postgres").database()
