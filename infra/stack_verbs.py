"""The verbs `up`, `down` and `status`."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict

from infra.paths import Layout
from infra.stack import ALL, ServiceStatus, Stack, checked


def up(args: list[str]) -> int:
    """Exit code 0 when every named service answers."""
    parser = _parser("up", "Start the local services; those that run already stay as they are.", "up redis kafka")
    parser.add_argument("--redis-server", metavar="PATH", help="another redis-server or valkey-server program")
    options = parser.parse_args(args)
    if options.redis_server:
        os.environ["BEFOREHAND_REDIS_SERVER"] = options.redis_server
    started = time.monotonic()
    addresses = _stack().up(options.services or ALL)
    if options.json:
        print(json.dumps(addresses, indent=1))
    else:
        for name, value in addresses.items():
            print(f"export {name}={value}")
        print(f"# ready in {time.monotonic() - started:.1f} s; every verb finds these by itself")
    return 0


def down(args: list[str]) -> int:
    """Exit code 0 also when nothing ran."""
    parser = _parser("down", "Stop the local services; their data stays for the next `up`.", "down")
    options = parser.parse_args(args)
    stopped = _stack().down(options.services or None)
    if options.json:
        print(json.dumps({"stopped": stopped}))
    else:
        print(f"stopped: {', '.join(stopped)}" if stopped else "nothing ran")
    return 0


def status(args: list[str]) -> int:
    """Exit code 0 when nothing is crashed or unwell, 1 otherwise."""
    parser = _parser("status", "What runs, where and since when.", "status --json")
    options = parser.parse_args(args)
    wanted = checked(options.services)
    found = [one for one in _stack().status() if not wanted or one.name in wanted]
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        for one in found:
            print(_line(one))
    return 1 if any(one.state in ("crashed", "unwell") for one in found) else 0


def _line(one: ServiceStatus) -> str:
    parts = [f"{one.name:<8} {one.state:<8}"]
    if one.uptime_s is not None:
        parts.append(f"{one.address or '':<30} {one.rss_bytes / 1e6:5.0f} MB  up {one.uptime_s:.0f} s")
    if one.detail:
        mend = f"./beforehand up {one.name}" if one.name in ALL else "start it again, or ./beforehand down"
        parts.append(f"{one.detail}; log: {one.log}\n  mend: {mend}")
    return " ".join(parts)


def _stack() -> Stack:
    return Stack(Layout.current().state)


def _parser(verb: str, description: str, example: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"./beforehand {verb}", description=description, epilog=f"example: ./beforehand {example}"
    )
    parser.add_argument("services", nargs="*", metavar="SERVICE", help=f"of {', '.join(ALL)}; all when none is named")
    parser.add_argument("--json", action="store_true", help="for a program to read")
    return parser
