"""A real Airflow of its own: scheduler, DAG processor and API server on the loopback, and SQLite."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from dags.airflow_home import settings

CHECKOUT = Path(__file__).resolve().parents[2]
AIRFLOW = Path(sys.executable).with_name("airflow")
STOP_S = 20.0


class Airflow:
    """Started with ``with``; every process in a session of its own, so that a stop leaves nothing behind."""

    def __init__(self, home: Path, environ: dict[str, str]) -> None:
        self.home = home
        port = free_port()
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
            **settings(home),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "PYTHONPATH": str(CHECKOUT),
            **environ,
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Airflow:
        self.home.mkdir(parents=True, exist_ok=True)
        self.run("db", "migrate")
        for words in (["api-server", "--workers", "1"], ["scheduler", "--skip-serve-logs"], ["dag-processor"]):
            with (self.home / f"{words[0]}.log").open("wb") as log:
                started = subprocess.Popen(
                    [str(AIRFLOW), *words], env=self.environ, stdout=log, stderr=log, start_new_session=True
                )
            self._processes.append(started)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def run(self, *words: str) -> str:
        """One command of Airflow's own."""
        done = subprocess.run([str(AIRFLOW), *words], env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def ask(self, query: str, *values: str) -> list[tuple[object, ...]]:
        """Read Airflow's database."""
        with sqlite3.connect(f"file:{self.home}/airflow.db?mode=ro", uri=True, timeout=30) as db:
            return db.execute(query, values).fetchall()

    def wait(self, query: str, *values: str, within_s: float) -> list[tuple[object, ...]]:
        """Until the query finds something. The logs' ends are told when it does not."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            assert all(process.poll() is None for process in self._processes), self.logs()
            if found := self.ask(query, *values):
                return found
            assert not (broken := self.ask("select stacktrace from import_error")), broken
            time.sleep(1)
        raise AssertionError(f"{query} {values}: nothing\n{self.logs()}")

    def logs(self) -> str:
        """The ends of the services' logs and of the tasks'."""
        found = [*self.home.glob("*.log"), *(self.home / "logs").rglob("attempt=*.log")]
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in found)


def free_port() -> int:
    """A port of the loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
