"""The local Flink cluster's settings.

Flink's scripts start a JVM only to work out the memory of the next one.
The sizes are known here, so they are written down and the two JVMs are started directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
SLOTS = 4
TASK_HEAP_MB = 640
FRAMEWORK_HEAP_MB = 128
OFF_HEAP_MB = 128
NETWORK_MB = 64
MANAGED_MB = 128

# Flink reaches into the JDK; since Java 16 that must be allowed by name. The list is that of its own config.yaml.
_EXPORTS = (
    "java.rmi/sun.rmi.registry jdk.compiler/com.sun.tools.javac.api jdk.compiler/com.sun.tools.javac.file "
    "jdk.compiler/com.sun.tools.javac.parser jdk.compiler/com.sun.tools.javac.tree "
    "jdk.compiler/com.sun.tools.javac.util java.security.jgss/sun.security.krb5"
).split()
_OPENS = (
    "java.lang java.net java.io java.nio sun.nio.ch java.lang.reflect java.text java.time java.util "
    "java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks"
).split()
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
        "rest.bind-port": f"'{ports['rest']}'",
        "taskmanager.numberOfTaskSlots": SLOTS,
        "parallelism.default": 2,
        # The TaskManager refuses to start unless every one of these is set.
        "taskmanager.cpu.cores": float(SLOTS),
        "taskmanager.memory.framework.heap.size": f"{FRAMEWORK_HEAP_MB}m",
        "taskmanager.memory.task.heap.size": f"{TASK_HEAP_MB}m",
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
        "env.java.opts.all": f"'{' '.join(MODULE_OPTIONS)}'",
    }
    for name in ("checkpoints", "savepoints", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return "".join(f"{key}: {value}\n" for key, value in settings.items())


def flink_java_options(config: Path) -> tuple[FlinkPart, FlinkPart]:
    """The JobManager and the TaskManager, in the order in which they start."""
    common = (*MODULE_OPTIONS, f"-Dlog4j.configurationFile={(config / 'log4j2.properties').as_uri()}")
    heap = FRAMEWORK_HEAP_MB + TASK_HEAP_MB
    package = "org.apache.flink.runtime"
    return (
        FlinkPart(
            "Flink's JobManager",
            f"{package}.entrypoint.StandaloneSessionClusterEntrypoint",
            ("-Xmx384m", "-XX:MaxMetaspaceSize=256m", "-XX:+UseSerialGC", *common),
            ("--executionMode", "cluster"),
        ),
        FlinkPart(
            "Flink's TaskManager",
            f"{package}.taskexecutor.TaskManagerRunner",
            (
                f"-Xmx{heap}m",
                f"-XX:MaxDirectMemorySize={OFF_HEAP_MB + NETWORK_MB}m",
                "-XX:MaxMetaspaceSize=256m",
                "-XX:+UseSerialGC",
                *common,
            ),
            (),
        ),
    )
