"""``./beforehand registry``: upgrade it, and see who did what."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

import msgspec

from infra.registry.migrate import upgrade
from schemas.cli import Result, main, parser, say, verb
from schemas.registry import Database, Registry
from schemas.registry.builds import Builds
from schemas.registry.leases import all_held
from schemas.registry.tables import REVISION

ACTS = ("status", "upgrade", "acts", "builds", "leases")


def registry_verb(args: argparse.Namespace) -> Result:
    """Run the verb."""
    acts = {"status": _status, "upgrade": _upgrade, "acts": _acts, "builds": _builds, "leases": _leases}
    return acts[args.act](args.limit)


def _status(_limit: int) -> Result:
    database = Database(upgrading=True)
    found = database.found_revision()
    say(f"{database.url}: revision {found or 'none, it is empty'}, this code needs {REVISION}")
    return {"url": database.url, "revision": found, "needs": REVISION, "upgrade_needed": (found or REVISION) < REVISION}


def _upgrade(_limit: int) -> Result:
    before, after = upgrade()
    say(f"revision {after}" + (", as before" if before == after else f"; it was {before or 'empty'}"))
    return {"before": before, "after": after, "changed": before != after}


def _acts(limit: int) -> Result:
    rows: list[dict[str, Any]] = Registry().history()[:limit]
    for row in rows:
        say(f"{_when(row['at'])}  {row['who']:<12} {row['act']:<11} {row['release']}  {row['why']}")
    return {"acts": rows}


def _builds(limit: int) -> Result:
    rows = Builds(Database()).last(limit)
    for row in rows:
        took = f"{row.seconds:.1f} s" if row.seconds is not None else ""
        line = f"{_when(row.begun_at)}  {row.data:<16} {row.stage:<9} {row.state:<8} {took:>9}  {row.who}: {row.why}"
        say(line)
    return {"builds": msgspec.to_builtins(rows)}


def _leases(_limit: int) -> Result:
    rows = all_held(Database())
    for row in rows:
        say(f"{row.name}: {row.holder} since {_when(row.taken_at)}, token {row.token}: {row.about}")
    if not rows:
        say("nobody holds a lease")
    return {"leases": msgspec.to_builtins(rows)}


def _when(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def run() -> None:
    """The verb's parser."""
    top, verbs = parser("registry", "The registry of releases, builds and plans.")
    about = "upgrade the registry, or see its acts (who, when, why), builds and leases"
    sub = verb(verbs, "registry", registry_verb, about, "registry upgrade")
    sub.add_argument("act", choices=ACTS)
    sub.add_argument("--limit", type=_positive, default=50, metavar="N", help="rows to show (default: 50)")
    main(top)


if __name__ == "__main__":
    run()
