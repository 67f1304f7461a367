"""What the registry is told about a build: who builds what, how long each stage took, how fresh its asset is."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas import cli
from schemas.registry import Database
from schemas.registry.builds import Builds
from schemas.registry.leases import all_held, held

LEASE_S = 60.0
WAIT_S = 6 * 3600.0


@contextmanager
def one_at_a_time(database: Database, data: str) -> Iterator[None]:
    """One build of a data set at a time, on every host: a second one waits, and then finds everything unchanged.

    Raises:
        LeaseHeldError: the other one took longer than six hours.
    """
    name, about = f"build:{data}", f"a build of {data}"
    running = next((lease for lease in all_held(database) if lease.name == name), None)
    if running and not running.ended:
        cli.say(f"another build of {data} is running ({running.holder}): waiting for it")
    with held(database, name, about=about, for_s=LEASE_S, wait_s=WAIT_S):
        yield


@contextmanager
def recorded(builds: Builds, data: str, stage: str, input_hash: str, why: str) -> Iterator[Measured]:
    """A row in ``builds`` for what runs inside; ``failed`` when it raises."""
    number = builds.begin(data, stage, input_hash, why)
    measured = Measured()
    try:
        yield measured
    except BaseException:
        builds.end(number, seconds=measured.seconds(), cpu_s=measured.cpu_s(), num_bytes=0, failed=True)
        raise
    builds.end(number, seconds=measured.seconds(), cpu_s=measured.cpu_s(), num_bytes=measured.num_bytes)


class Measured:
    """Time and processor time since it was made, its ended children's included."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._begun, self._cpu = time.monotonic(), _cpu_s()

    def seconds(self) -> float:
        """Since the start."""
        return round(time.monotonic() - self._begun, 2)

    def cpu_s(self) -> float:
        """Used since the start."""
        return round(_cpu_s() - self._cpu, 2)


def size_of(folder: Path) -> int:
    """Bytes of all files inside."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _cpu_s() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
