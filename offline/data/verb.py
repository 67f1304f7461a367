"""``./beforehand data``: read a source, split it, write it."""

from __future__ import annotations

import argparse
from pathlib import Path

from offline.data.forgotten import forget, read_forgotten
from offline.data.generic import read_files
from offline.data.journey import read_journey
from offline.data.online_retail import read_online_retail
from offline.data.source import Source
from offline.data.split import LISTED, cut_time, narrow, split, write
from schemas import cli
from schemas.errors import DataError
from schemas.locations import state_dir
from schemas.plan import load_plan


def make_data(args: argparse.Namespace) -> cli.Result:
    """Run the verb; the result is ``dataset.json`` with the name and the folder."""
    source = _read(args)
    if args.forgotten:
        source = forget(source, read_forgotten(args.forgotten))
    name = args.name or _default_name(source, small=args.small)
    folder = state_dir() / "data" / name
    with cli.step(f"data {name}") as made:
        narrowed = narrow(source, small=args.small)
        about = write(folder, narrowed, split(narrowed, cut_time(narrowed.events)), load_plan().model.window)
        counts = (f"{about[key]:,} {key}" for key in ("items", "users", "events", "replay", "targets"))
        made(", ".join(counts))
    for reason, count in {**about["rejected"], **about["left_out"]}.items():
        cli.say(f"  {count:,} × {reason}")
    if source.name == "files":
        for row in about["first_rejected"][:LISTED]:
            cli.say(f"  {row['file']} row {row['row']}: {row['reason']} ({row['value']!r})")
    return {"name": name, "folder": str(folder), **about}


def _read(args: argparse.Namespace) -> Source:
    if args.catalogue or args.events:
        if not (args.catalogue and args.events):
            raise DataError("a shop's own data are two files", where="--catalogue, --events", mend="Give both.")
        return read_files(args.catalogue, args.events, args.profiles)
    if args.source == "online-retail":
        if args.file is None:
            raise DataError("no file", where="--file", mend="Give invoices.parquet of Online Retail.")
        return read_online_retail(args.file)
    return read_journey()


def _default_name(source: Source, *, small: bool) -> str:
    name = "journey" if source.name == "completejourney" else source.name
    return f"{name}-small" if small else name


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("--small", action="store_true", help="500 users and the 3,000 most bought items")
    add("--name", help="of the data set (default: journey or journey-small)")
    add("--source", choices=["completejourney", "online-retail"], default="completejourney")
    add("--file", type=Path, help="invoices.parquet of Online Retail")
    add("--catalogue", type=Path, help="your items: item_id, title[, text, category, brand]")
    add("--events", type=Path, help="your events: user_id, item_id, kind, at[, event_id]")
    add("--profiles", type=Path, help="your users' buckets: user_id, bucket")
    add("--forgotten", type=Path, help="users to leave out: what `forget --list` prints")
