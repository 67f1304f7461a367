"""What the stack asks of a service: start, stop, health, and where it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from infra import health, processes
from infra.paths import Layout

HOST = health.HOST
START_TIMEOUT_S = 90.0

# Everything to the console, which is the process's log file.
LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n
"""


@dataclass(frozen=True)
class Service(ABC):
    """One service in one folder on given ports; starting and stopping it are idempotent."""

    layout: Layout
    ports: dict[str, int]
    name: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    variable: ClassVar[str]
    grace_s: ClassVar[float] = 10.0

    @property
    def folder(self) -> Path:
        return self.layout.run / self.name

    @property
    @abstractmethod
    def address(self) -> str:
        """What `variable` is set to."""

    @abstractmethod
    def problem(self) -> str | None:
        """None when the service answers."""

    @abstractmethod
    def start(self) -> None:
        """Start what does not run yet and return when the service answers."""

    @classmethod
    def part_folders(cls, folder: Path) -> Iterator[Path]:
        """The folder of each of the service's processes."""
        yield folder

    def stop(self) -> bool:
        """Stop every process, the last started first; True when one ran."""
        ran = False
        for part in reversed(list(self.part_folders(self.folder))):
            ran = processes.stop(part, self.grace_s) or ran
        return ran
