"""`./beforehand env TIER...`: sets up environments ahead of need."""

from __future__ import annotations

import argparse
import time

from infra import environments
from infra.paths import Layout
from infra.stamps import say


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./beforehand env",
        description="Set up the environments of the named tiers, and only where the lock changed.",
        epilog="example: ./beforehand env nearline online",
    )
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"one or more of {', '.join(environments.TIERS)}")
    parser.add_argument("--all", action="store_true", help="every tier")
    options = parser.parse_args(args)
    unknown = sorted(set(options.tiers) - set(environments.TIERS))
    if unknown:
        parser.error(f"no tier is called {unknown[0]!r}; choose from {', '.join(environments.TIERS)}")
    layout = Layout.current()
    tiers = environments.TIERS if options.all else options.tiers
    if not tiers:
        for tier in environments.TIERS:
            print(f"{tier:<10} {environments.state(layout, tier)}")
        return 0
    for tier in tiers:
        started = time.monotonic()
        python = environments.ensure(layout, tier)
        say(f"{tier}: ready in {time.monotonic() - started:.1f} s")
        print(python)
    return 0
