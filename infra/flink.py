"""Flink: a standalone cluster from PyFlink's own wheel, and its settings.

Flink's scripts start a JVM only to work out the memory of the next one.
The sizes are known here, so they are written down and the two JVMs are started directly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra import environments, health, processes, system
from infra.errors import LauncherError
from infra.paths import Layout
from infra.service import HOST, LOG4J, START_TIMEOUT_S, Service

SLOTS = 4
TASK_HEAP_MB = 640  # windows of some 200,000 users; docs/streaming.md has the sizes
HEAP_VARIABLE = "BEFOREHAND_FLINK_HEAP_MB"
FRAMEWORK_HEAP_MB = 128
OFF_HEAP_MB = 128
NETWORK_MB = 64
MANAGED_MB = 128

# Flink reaches into the JDK; since Java 16 that must be allowed by name. The list is that of its own config.yaml.
_EXPORTS = [
    "java.rmi/sun.rmi.registry",
    "jdk.compiler/com.sun.tools.javac.api",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.compiler/com.sun.tools.javac.parser",
    "jdk.compiler/com.sun.tools.javac.tree",
    "jdk.compiler/com.sun.tools.javac.util",
    "java.security.jgss/sun.security.krb5",
]
_OPENS = [
    "java.lang",
    "java.net",
    "java.io",
    "java.nio",
    "sun.nio.ch",
    "java.lang.reflect",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
]
MODULE_OPTIONS = [
    *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS),
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS),
]


@dataclass(frozen=True)
class FlinkPart:
    """One of the cluster's two JVMs."""

    name: str
    main_class: str
    java_options: tuple[str, ...]
    arguments: tuple[str, ...]


def task_heap_mb() -> int:
    """Memory of the local TaskManager for users' windows, in MB: ``$BEFOREHAND_FLINK_HEAP_MB`` or the default."""
    text = os.environ.get(HEAP_VARIABLE, str(TASK_HEAP_MB))
    if not text.isascii() or not text.isdigit() or len(text) > 7 or not TASK_HEAP_MB // 2 <= int(text) <= 1_000_000:
        least = TASK_HEAP_MB // 2
        raise LauncherError(f"${HEAP_VARIABLE} is {text!r}", f"set it to whole megabytes, {least} or more, or unset it")
    return int(text)


def flink_config(folder: Path, ports: dict[str, int], python: Path) -> str:
    """config.yaml: loopback everywhere, files under the service's folder, memory small."""
    settings = {
        "jobmanager.rpc.address": HOST,
        "jobmanager.rpc.port": ports["jobmanager"],
        "jobmanager.bind-host": HOST,
        "taskmanager.host": HOST,
        "taskmanager.bind-host": HOST,
        "rest.address": HOST,
        "rest.bind-address": HOST,
        "rest.port": ports["rest"],
        "rest.bind-port": ports["rest"],
        "taskmanager.numberOfTaskSlots": SLOTS,
        "parallelism.default": 2,
        # The TaskManager refuses to start unless every one of these is set.
        "taskmanager.cpu.cores": float(SLOTS),
        "taskmanager.memory.framework.heap.size": f"{FRAMEWORK_HEAP_MB}m",
        "taskmanager.memory.task.heap.size": f"{task_heap_mb()}m",
        "taskmanager.memory.framework.off-heap.size": f"{OFF_HEAP_MB}m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.managed.size": f"{MANAGED_MB}m",
        "taskmanager.memory.network.min": f"{NETWORK_MB}m",
        "taskmanager.memory.network.max": f"{NETWORK_MB}m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
        # A lost TaskManager is noticed in seconds, yet a busy machine of two cores is not taken for a dead one.
        "heartbeat.interval": 3000,
        "heartbeat.timeout": 30000,
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.savepoint-dir": (folder / "savepoints").as_uri(),
        "io.tmp.dirs": folder / "tmp",
        "python.executable": python,
        "python.client.executable": python,
        "env.java.opts.all": " ".join(MODULE_OPTIONS),
    }
    for name in ("checkpoints", "savepoints", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    # JSON is YAML: quoted, a folder's name may hold any character.
    return "".join(f"{key}: {json.dumps(str(value))}\n" for key, value in settings.items())


def flink_java_options(config: Path) -> tuple[FlinkPart, FlinkPart]:
    """The JobManager and the TaskManager, in the order in which they start."""
    common = (*MODULE_OPTIONS, f"-Dlog4j.configurationFile={(config / 'log4j2.properties').as_uri()}")
    heap = FRAMEWORK_HEAP_MB + task_heap_mb()
    package = "org.apache.flink.runtime"
    return (
        FlinkPart(
            "Flink's JobManager",
            f"{package}.entrypoint.StandaloneSessionClusterEntrypoint",
            ("-Xmx384m", "-XX:MaxMetaspaceSize=256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *common),
            ("--executionMode", "cluster"),
        ),
        FlinkPart(
            "Flink's TaskManager",
            f"{package}.taskexecutor.TaskManagerRunner",
            (
                # Both, as Flink's own scripts set them: a heap that grows step by step is collected far more often.
                f"-Xms{heap}m",
                f"-Xmx{heap}m",
                f"-XX:MaxDirectMemorySize={OFF_HEAP_MB + NETWORK_MB}m",
                "-XX:MaxMetaspaceSize=256m",
                "-XX:+UseSerialGC",
                *common,
            ),
            (),
        ),
    )


class Flink(Service):
    """A standalone cluster from PyFlink's own wheel: a JobManager and a TaskManager with four slots."""

    name = "flink"
    port_names = ("rest", "jobmanager")
    variable = "BEFOREHAND_FLINK"

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.ports['rest']}"

    def problem(self) -> str | None:
        return health.flink_problem(self.ports["rest"])

    @classmethod
    def part_folders(cls, folder: Path) -> Iterator[Path]:
        yield folder / "jobmanager"
        yield folder / "taskmanager"

    def start(self) -> None:
        python = environments.ensure(self.layout, "streaming")
        home = pyflink_home(self.layout)
        config = self.folder / "conf"
        config.mkdir(parents=True, exist_ok=True)
        (config / "config.yaml").write_text(flink_config(self.folder, self.ports, python))
        (config / "log4j2.properties").write_text(LOG4J)
        env = {**os.environ, "FLINK_CONF_DIR": str(config), "FLINK_PLUGINS_DIR": str(home / "plugins")}
        env["FLINK_LIB_DIR"], env["FLINK_OPT_DIR"] = str(home / "lib"), str(home / "opt")
        # Python workers are started by name.
        env["PATH"] = os.pathsep.join([str(python.parent), env.get("PATH", os.defpath)])
        # `flink run` ships the Python operators with a job; a job sent over REST must find them here.
        classpath = os.pathsep.join([f"{home / 'lib'}/*", *map(str, (home / "opt").glob("flink-python-*.jar"))])
        started = []
        for part, folder in zip(flink_java_options(config), self.part_folders(self.folder), strict=True):
            command = [str(system.java().program), *part.java_options, "-cp", classpath]
            command += [part.main_class, "--configDir", str(config), *part.arguments]
            started.append(processes.start(part.name, command, folder, env=env, cwd=self.folder))
        processes.wait_until(started, self.problem, START_TIMEOUT_S)


def pyflink_home(layout: Layout) -> Path:
    """The wheel holds a whole Flink distribution."""
    for home in (layout.envs / "streaming").glob("lib/python*/site-packages/pyflink"):
        return home
    raise LauncherError("the streaming environment holds no PyFlink", "./beforehand env streaming")
