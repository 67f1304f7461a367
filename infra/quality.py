"""`./beforehand quality LOOK`: what the DAGs `promote` and `quality_watch` ask, each a look that a person can take too.

Exit codes: 0 all is well, 1 it could not be looked at, 4 it is not well (the JSON then has `error`, `where`, `mend`).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from infra import looks
from infra.errors import LauncherError
from infra.paths import Layout
from infra.stack import Stack
from infra.watching import Bounds, Watch

NOT_WELL = 4
Found = dict[str, Any]
_UNITS = {"s": 1, "m": 60, "h": 3600}


def main(args: list[str]) -> int:
    """Take one look, say what was seen, and return the exit code."""
    options = _parser().parse_args(args)
    try:
        found: Found = options.look(options)
    except LauncherError as error:
        if options.json:
            print(json.dumps({"error": error.what, "where": f"quality {options.name}", "mend": error.mend}))
        raise
    problem = found.get("problem", "")
    if problem:
        mend = f"See docs/runbook.md#{options.anchor}."
        found |= {"error": problem, "where": f"quality {options.name}", "mend": mend}
        print(f"{options.name}: {problem}\n  mend: {mend}", file=sys.stderr)
    else:
        print(f"{options.name}: all is well", file=sys.stderr)
    if options.json:
        print(json.dumps(found))
    return NOT_WELL if problem else 0


def seconds(text: str) -> float:
    """`10m` -> 600."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30s, 10m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def online_url(given: str | None) -> str | None:
    """Where the look-up service answers: given, `$BEFOREHAND_ONLINE`, or the one of this state folder."""
    running = Stack(Layout.current().state).environment()
    return given or os.environ.get("BEFOREHAND_ONLINE") or running.get("BEFOREHAND_ONLINE")


def _watch(options: argparse.Namespace) -> Found:
    unjudged = {"release": options.release, "answers": 0, "judged": False, "problem": ""}
    url = online_url(options.url)
    if url is None:
        print("no look-up service is known: there is nothing to watch (BEFOREHAND_ONLINE)", file=sys.stderr)
        return unjudged
    if options.canary and not looks.is_tried(options.release):
        print("nobody tries it: the first release of all needs no canary", file=sys.stderr)
        return unjudged
    bounds = Bounds(late=options.late, refused=options.refused, worse_rungs=options.worse_rungs)
    found = Watch(url, options.release, options.duration, options.canary, bounds).run()
    if not found["problem"] and not found.get("judged"):
        print(f"too few answers of {options.release} to judge it by: {found.get('of_the_release', 0)}", file=sys.stderr)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./beforehand quality",
        description="Look whether everything is as it should be.",
        epilog="example: ./beforehand quality freshness",
    )
    subs = parser.add_subparsers(dest="name", required=True, metavar="LOOK")
    _look(subs, "freshness", lambda _: looks.freshness(), "the age of the release against the plan", "assetstale")
    _look(subs, "dead-letters", lambda _: looks.dead_letters(), "the stream's share of bad records", "deadletters")
    drift = _look(
        subs, "drift", lambda o: looks.drift(o.unknown, o.rest_h), "events of items the release does not know", "drift"
    )
    drift.add_argument("--unknown", type=float, default=2.0, metavar="N", help="of a user's window, on average")
    drift.add_argument("--rest-h", type=float, default=20.0, metavar="H", help="no drift for a younger release")
    _of_release(
        _look(subs, "gate", lambda o: looks.gate(o.release), "a release against the plan's gate", "gaterefused")
    )
    canary = _look(
        subs, "canary", lambda o: looks.canary(o.release, o.share), "let some users try a release", "canaryfailed"
    )
    _of_release(canary)
    canary.add_argument("--share", type=float, required=True, help="of the users, as in 0.05")
    undo = _look(
        subs, "undo", lambda o: looks.undo(o.release, o.why), "take back a release that failed", "canaryfailed"
    )
    _of_release(undo)
    undo.add_argument("--why", required=True, help="kept in the registry")
    watch = _look(subs, "watch", _watch, "watch the service while it serves a release", "canaryfailed")
    _of_release(watch)
    watch.add_argument("--for", dest="duration", type=seconds, default=600.0, metavar="TIME", help="as in 10m")
    watch.add_argument("--canary", action="store_true", help="some users try it; another release is current")
    watch.add_argument("--url", help="of the service; default: $BEFOREHAND_ONLINE")
    watch.add_argument("--late", type=float, default=Bounds.late, help="share of late answers (%(default)s)")
    watch.add_argument("--refused", type=float, default=Bounds.refused, help="share refused with 5xx (%(default)s)")
    watch.add_argument(
        "--worse-rungs", type=float, default=Bounds.worse_rungs, help="fall of the share of good rungs (%(default)s)"
    )
    return parser


def _look(
    subs: Any, name: str, look: Callable[[argparse.Namespace], Found], about: str, anchor: str
) -> argparse.ArgumentParser:
    more = " --release ID" if name in ("gate", "canary", "undo", "watch") else ""
    sub = subs.add_parser(name, help=about, description=about, epilog=f"example: ./beforehand quality {name}{more}")
    sub.add_argument("--json", action="store_true", help="one JSON object, last, on stdout")
    sub.set_defaults(look=look, anchor=anchor)
    return sub


def _of_release(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--release", required=True, metavar="ID")
