"""``beforehand catalogue``."""

from __future__ import annotations

import argparse
import math
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from typing import Any

import msgspec

from nearline.catalogue import CatalogueFollower
from nearline.catalogue_metrics import CatalogueTally
from nearline.catalogue_served import check_url, wait_served
from nearline.catalogue_topic import KafkaChanges, send_changes
from nearline.insertion import Insertion
from nearline.replay import SHOWN_BAD, lines
from nearline.topics import ensure_topics
from schemas.cli import Result, say, verb
from schemas.errors import DataError, StoreError
from schemas.item_change import Change, ItemChange, decode_change
from schemas.locations import address
from schemas.plan import load_plan
from schemas.registry import Registry


def add_catalogue(verbs: Any) -> None:
    """Add the verb to the room's parser."""
    about = "New, changed and withdrawn items: follow the catalogue topic into releases, or send changes to it."
    sub = verb(verbs, "catalogue", _run, about, "catalogue follow --data journey")
    acts = sub.add_subparsers(dest="act", required=True, metavar="ACT")
    follow = acts.add_parser("follow", help="insert what comes, until stopped; a second one waits to take over")
    follow.add_argument("--data", default="journey", metavar="NAME", help="the data set of the current release")
    follow.add_argument("--every", type=_seconds, default=10.0, metavar="S", help="gather new items so long (10)")
    follow.add_argument("--keep", type=_count, default=3, metavar="N", help="superseded insertions to keep (3)")
    follow.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="as at the build, may be repeated"
    )
    follow.add_argument("--until-idle", type=_seconds, metavar="S", help="stop after S seconds without a record")
    follow.add_argument("--metrics-port", type=int, metavar="P", help="Prometheus metrics at http://HOST:P/metrics")
    follow.add_argument("--metrics-host", default="127.0.0.1", metavar="HOST", help="another than %(default)s")
    send = acts.add_parser("send", help="put changes from files into the topic")
    send.add_argument("files", nargs="+", type=Path, metavar="FILE", help="one change a line (schemas/json)")
    withdraw = acts.add_parser("withdraw", help="take items out by their ids")
    withdraw.add_argument("items", nargs="+", metavar="ITEM")
    for one in (send, withdraw):
        one.add_argument(
            "--wait", action="store_true", help="until the service answers with them; says how long it took"
        )
        one.add_argument("--url", metavar="URL", help="of the service (default: $BEFOREHAND_ONLINE)")
    for one in (follow, send, withdraw):
        one.add_argument("--json", action="store_true", help="print one JSON object with the result, last, on stdout")


def _run(args: argparse.Namespace) -> Result:
    return _follow(args) if args.act == "follow" else _send(args)


def _send(args: argparse.Namespace) -> Result:
    # Everything is looked at before anything is sent: what is sent stays.
    url = _url(args.url) if args.wait else ""
    changes, bad = _read(args.files) if args.act == "send" else (withdrawals(args.items), 0)
    kafka = address("kafka")
    ensure_topics(kafka)
    begun = time.monotonic()
    result: dict[str, Any] = {"changes": send_changes(kafka, changes), "bad": bad}
    if args.wait:
        wait_served(url, changes)
        result["served_s"] = round(time.monotonic() - begun, 2)
    say(f"{result['changes']:,} changes sent" + (f", served after {result['served_s']} s" if args.wait else ""))
    return result


def _url(given: str | None) -> str:
    if given is not None:
        return check_url(given, "--url")
    return check_url(address("online"), "BEFOREHAND_ONLINE")


def withdrawals(items: Sequence[str]) -> list[ItemChange]:
    """The changes that take items out now. Raises ``DataError`` for what is no item's id."""
    now = int(time.time() * 1000)
    return [_withdrawal(item, now) for item in items]


def _withdrawal(item: str, now: int) -> ItemChange:
    try:
        raw = msgspec.json.encode({"item_id": item, "change": Change.WITHDRAWN, "at": now})
    except UnicodeEncodeError:
        raise DataError("not UTF-8", where="ITEM", value=item, mend="Give the id as the catalogue has it.") from None
    return decode_change(raw, "ITEM")


def _read(files: Sequence[Path]) -> tuple[list[ItemChange], int]:
    """The good lines, and how many are bad; those are told by their numbers. Raises ``DataError``: all are bad."""
    found, bad = list[ItemChange](), 0
    for where, raw in lines(files):
        try:
            found.append(decode_change(raw, where))
        except DataError as error:
            bad += 1
            if bad <= SHOWN_BAD:
                say(f"left out: {error}")
    if bad and not found:
        raise DataError("no line is an item change", where="FILE", value=f"{bad} bad lines", mend="See schemas/json.")
    return found, bad


def _seconds(text: str) -> float:
    """An option's seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"seconds, 0 or more (got {text!r})")
    return value


def _count(text: str) -> int:
    """An option's whole number."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"a whole number, 0 or more (got {text!r})")
    return value


def _follow(args: argparse.Namespace) -> Result:
    load_plan(overrides=args.set)  # a wrong one is told now, not at the first change
    kafka = address("kafka")
    stop, tally, registry = Flag(), CatalogueTally(), Registry()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    if args.metrics_port is not None:
        tally.serve(args.metrics_port, args.metrics_host)
    ensure_topics(kafka)
    source, insertion = KafkaChanges(kafka), Insertion(args.data, args.keep, args.set)

    def current() -> str | None:
        return registry.pointer().current

    def insert(changes: Sequence[ItemChange]) -> dict[str, Any]:
        done = insertion(changes)
        if done["release"] != current():
            raise StoreError(
                "another release was promoted meanwhile", where="registry", mend="It gets the changes next."
            )
        return done

    say("following the catalogue; Ctrl-C stops")
    try:
        CatalogueFollower(source, insert, current, every_s=args.every, tally=tally, stop=stop).run(
            until_idle_s=args.until_idle
        )
    finally:
        insertion.close()
        with suppress(StoreError):
            source.close()
    return tally.summary()
