"""Does a service really answer? Each check speaks a little of the service's own protocol over a plain socket.

Each returns None when all is well, else the reason in a few words; none raises for a service that is down.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import time
from pathlib import Path

HOST = "127.0.0.1"
LOWEST_PORT, OWN_PORTS, TRIES = 10_000, 12_000, 50
PATIENCE_S = 5.0
PROBE_S = 5.0
"""A service that is there and says nothing for so long is unwell; a JVM may pause for a second."""


def redis_problem(port: int, timeout_s: float = PROBE_S) -> str | None:
    """PING must be answered with PONG; a server that still loads its data says -LOADING."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(b"PING\r\n")
            said = connection.recv(100)
    except OSError as error:
        return _why(error)
    return None if said.startswith(b"+PONG") else f"PING was answered with {said!r}"


def kafka_problem(port: int, timeout_s: float = PROBE_S) -> str | None:
    """The broker must answer an ApiVersions request; its port opens once it has joined its controller."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            # Request header v1: API key 18 (ApiVersions), version 0, correlation id, a client id.
            client = b"beforehand"
            body = struct.pack(">hhih", 18, 0, 7, len(client)) + client
            connection.sendall(struct.pack(">i", len(body)) + body)
            said = connection.recv(10)
    except OSError as error:
        return _why(error)
    if len(said) < 10:
        return "the broker closed the connection"
    _, correlation, code = struct.unpack(">iih", said)
    return None if (correlation, code) == (7, 0) else f"ApiVersions was answered with error {code}"


def flink_problem(port: int, timeout_s: float = PROBE_S) -> str | None:
    """The REST overview must count a TaskManager."""
    try:
        overview = http_json(port, "/overview", timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _why(error)
    if overview.get("taskmanagers", 0) < 1:
        return "no TaskManager has registered"
    return None


def http_json(port: int, path: str, timeout_s: float) -> dict:
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def free_ports(wanted: dict[str, int | None]) -> dict[str, int]:
    """A port for each name: the wanted one when nobody has it, else a fresh one.

    A fresh one is below those that the kernel gives to outgoing connections. From among them, the port of a service
    that was killed is soon some connection's own, most likely one that looks for the service: then it could not come
    back where its clients know it.
    """
    held: list[socket.socket] = []
    ports: dict[str, int] = {}
    try:
        for name, preferred in wanted.items():
            holder = _hold_soon(preferred) or _fresh()
            assert holder is not None, "the kernel has no free port"
            held.append(holder)
            ports[name] = holder.getsockname()[1]
    finally:
        for holder in held:
            holder.close()
    return ports


def _hold_soon(port: int | None) -> socket.socket | None:
    """A process that was just killed is gone before its threads are, and they have its port for a moment more."""
    deadline = time.monotonic() + PATIENCE_S
    while (holder := _hold(port)) is None and port is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    return holder


def _fresh() -> socket.socket | None:
    first = _first_outgoing()
    tries = random.sample(range(first - OWN_PORTS, first), TRIES) if first > OWN_PORTS + LOWEST_PORT else []
    return next((holder for port in tries if (holder := _hold(port))), None) or _hold(0)


def _first_outgoing() -> int:
    """The lowest port of outgoing connections; 0 where the kernel does not tell."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 0


def _hold(port: int | None) -> socket.socket | None:
    if port is None:
        return None
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As the servers do: a port whose old connections are still winding down counts as free.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((HOST, port))
        return holder
    except OSError:
        holder.close()
        return None


def wait_for_port(port: int, timeout_s: float) -> bool:
    """True as soon as something listens there."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port), timeout=0.5).close()
            return True
        except OSError:
            time.sleep(0.05)
    return False


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
