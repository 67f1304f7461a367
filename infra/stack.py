"""The local stack: real Redis, Kafka and Flink on the loopback address, without containers.

    stack = Stack(state_dir)
    stack.up(("redis", "kafka"))   # idempotent; starts what does not run
    stack.environment()            # {"BEFOREHAND_REDIS": "redis://127.0.0.1:…", …} of what runs
    stack.down()                   # idempotent; nothing is left behind, the data is kept

Two stacks with different state folders do not meet.
`up` after a crash starts only what is missing, on the same ports where they are free.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from infra import environments, health, jars, processes, system
from infra.errors import LauncherError
from infra.paths import ROOT, Layout
from infra.services import SERVICES, Service, redis_server
from infra.stamps import locked, say

ALL = tuple(SERVICES)


@dataclass(frozen=True)
class ServiceStatus:
    """One service as `status` shows it; `state` is running, unwell, crashed or stopped."""

    name: str
    state: str
    address: str | None
    pids: tuple[int, ...]
    rss_bytes: int
    uptime_s: float | None
    log: str
    detail: str | None

    @property
    def running(self) -> bool:
        return self.state == "running"


class Stack:
    """The services of one state folder."""

    def __init__(self, state_dir: Path | str) -> None:
        self.layout = Layout(root=ROOT, state=Path(state_dir).expanduser().absolute())

    @property
    def file(self) -> Path:
        return self.layout.run / "stack.json"

    def up(self, services: Sequence[str] = ALL) -> dict[str, str]:
        """Start the services side by side; when one fails, those that this call started are stopped again."""
        names = checked(services)
        prepare(self.layout, names)
        with locked(self.layout.run / "stack.lock", "starting or stopping this stack"):
            before = {name for name in self._ports() if self._runs(name)}
            ports = self._choose_ports(names, keep=before)
            starting = [name for name in names if name not in before]
            if starting:
                say(f"starting {', '.join(starting)}")
            chosen = [SERVICES[name](self.layout, ports[name]) for name in names]
            _start_all(chosen, undo=[service for service in chosen if service.name in starting])
        return self.environment()

    def down(self, services: Sequence[str] | None = None) -> list[str]:
        """Stop the named services, or all and every other process of this state folder; returns what ran."""
        names = checked(ALL if services is None else services)
        if not self.layout.run.is_dir():
            return []
        with locked(self.layout.run / "stack.lock", "starting or stopping this stack"):
            # Those that use the services go first, so that they can finish what they hold.
            others = self._others() if services is None else []
            stopped = [folder.name for folder in others if processes.stop(folder)]
            return stopped + _stop_all([service for name in names if (service := self._service(name))])

    def status(self) -> list[ServiceStatus]:
        """Every service, asked now, and the other processes that run from this state folder."""
        return [self._status_of(name) for name in ALL] + [_status_of_other(folder) for folder in self._others()]

    def environment(self) -> dict[str, str]:
        """The addresses of the services whose processes live, and of the look-up service when it runs."""
        found = {}
        for name in self._ports():
            service = self._service(name)
            if service and self._runs(name):
                found[service.variable] = service.address
        online = online_address(self.layout)
        return {**found, "BEFOREHAND_ONLINE": online} if online else found

    def _ports(self) -> dict[str, dict[str, int]]:
        try:
            return json.loads(self.file.read_text())["ports"]
        except FileNotFoundError:
            return {}

    def _choose_ports(self, names: Sequence[str], keep: set[str]) -> dict[str, dict[str, int]]:
        """Ports for the services to start, the last ones where they are free; written down before the start."""
        ports = self._ports()
        for name in names:
            if name not in keep:
                wanted = {port: ports.get(name, {}).get(port) for port in SERVICES[name].port_names}
                ports[name] = health.free_ports(wanted)
        record = {"ports": ports, "addresses": {}}
        for name, chosen in ports.items():
            record["addresses"][name] = SERVICES[name](self.layout, chosen).address
        partial = self.file.with_suffix(".partial")
        partial.write_text(json.dumps(record, indent=1) + "\n")
        partial.replace(self.file)
        return ports

    def _others(self) -> list[Path]:
        """The folders of long-running verbs (a worker, the look-up service) that were started with a log."""
        return sorted(
            path.parent
            for path in self.layout.run.glob("*/pid.json")
            if path.parent.name not in SERVICES and processes.find(path.parent)
        )

    def _service(self, name: str) -> Service | None:
        ports = self._ports().get(name)
        return SERVICES[name](self.layout, ports) if ports else None

    def _runs(self, name: str) -> bool:
        """Whether any process of the service lives; a half-crashed one keeps its ports."""
        return any(process.alive() for process in self._parts(name))

    def _parts(self, name: str) -> list[processes.Process]:
        folders = SERVICES[name].part_folders(self.layout.run / name)
        return [process for folder in folders if (process := processes.find(folder))]

    def _status_of(self, name: str) -> ServiceStatus:
        service, parts = self._service(name), self._parts(name)
        living = [part for part in parts if part.alive()]
        dead = [part for part in parts if not part.alive()]
        folders = list(SERVICES[name].part_folders(self.layout.run / name))
        state, detail = "stopped", None
        if dead:
            state, detail = "crashed", "; ".join(f"{part.name} (pid {part.pid}) is gone" for part in dead)
        elif living and service:
            detail = service.problem()
            state = "unwell" if detail else "running"
        return ServiceStatus(
            name=name,
            state=state,
            address=service.address if service and living else None,
            pids=tuple(part.pid for part in living),
            rss_bytes=sum(part.rss_bytes() for part in living),
            uptime_s=time.time() - max(part.started_at for part in living) if living else None,
            log=str((dead or living)[0].log if dead or living else folders[0] / "log"),
            detail=detail,
        )


def prepare(layout: Layout, names: Sequence[str]) -> None:
    """Everything that takes long the first time, before any process starts."""
    if "redis" in names:
        redis_server(layout)
    if "kafka" in names:
        jars.ensure(layout, "kafka")
    if "flink" in names:
        environments.ensure(layout, "streaming")
        system.java()


def online_address(layout: Layout) -> str | None:
    """The look-up service writes its address and pid when it starts; a dead one's address is not passed on."""
    try:
        record = json.loads((layout.run / "online" / "address.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    pid, url = record.get("pid"), record.get("url")
    return url if pid and url and processes.pid_lives(int(pid)) else None


def checked(services: Sequence[str]) -> list[str]:
    unknown = sorted(set(services) - set(ALL))
    if unknown:
        raise LauncherError(f"no service is called {unknown[0]!r}", f"choose from: {', '.join(ALL)}")
    return [name for name in ALL if name in services]


def _status_of_other(folder: Path) -> ServiceStatus:
    process = processes.find(folder)
    alive = process is not None and process.alive()
    return ServiceStatus(
        name=folder.name,
        state="running" if alive else "crashed",
        address=None,
        pids=(process.pid,) if process and alive else (),
        rss_bytes=process.rss_bytes() if process and alive else 0,
        uptime_s=time.time() - process.started_at if process and alive else None,
        log=str(folder / "log"),
        detail=None if alive else "it ended by itself",
    )


def _start_all(services: Sequence[Service], undo: Sequence[Service]) -> None:
    """Side by side, since the JVMs' start-up is what takes the time; after a failure `undo` is stopped again."""
    try:
        with ThreadPoolExecutor(max_workers=len(ALL)) as pool:
            futures = [pool.submit(service.start) for service in services]
            try:
                for future in futures:
                    future.result()
            except (LauncherError, KeyboardInterrupt):
                # The pool waits for its threads, and they for their services: without these they end at once.
                _stop_all(undo)
                raise
    except (LauncherError, KeyboardInterrupt):
        # One that was started in between.
        _stop_all(undo)
        raise


def _stop_all(services: Sequence[Service]) -> list[str]:
    with ThreadPoolExecutor(max_workers=len(ALL)) as pool:
        stopped = list(pool.map(lambda service: service.stop(), services))
    return [service.name for service, ran in zip(services, stopped, strict=True) if ran]
