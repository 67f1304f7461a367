"""``./beforehand release``: list, verify, try, promote, roll back, mark, delete; push to and fetch from a store."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from offline.build.accounts import size_of
from offline.build.report_page import ensure_page
from offline.release_gc import removable, remove, reported
from offline.release_store import VARIABLE, Store
from schemas import cli
from schemas.errors import ReleaseError
from schemas.locations import public_key_path, releases_dir
from schemas.registry import Registry, ReleaseRow, Status
from schemas.registry.database import wall_ms
from schemas.registry.leases import Lease, held
from schemas.release import load_public_key, read_manifest, verify_files
from schemas.units import seconds

PROMOTION = "promotion"
NEEDS_ID = ("show", "promote", "canary", "bad", "verify", "push", "fetch")
NEEDS_WHY = ("rollback", "bad", "end-canary")


def release(args: argparse.Namespace) -> cli.Result:
    """Run the verb."""
    if args.act in NEEDS_ID and not args.id:
        raise ReleaseError(
            "which release?", where=f"release {args.act}", mend="Give an id of `./beforehand release list`."
        )
    if not args.why and (args.act in NEEDS_WHY or args.force):
        raise ReleaseError(
            "no reason given", where=f"release {args.act}", mend='Add --why "…": it is kept with the act.'
        )
    return ACTS[args.act](Registry(), args)


def _list(registry: Registry, _args: argparse.Namespace) -> cli.Result:
    rows, pointer = registry.all(), registry.pointer()
    for row in rows:
        status = f"canary {pointer.canary_share:.0%}" if row.id == pointer.canary else row.status
        cli.say(f"{row.id}  {status:11}  Recall@50 {row.metrics.get('recall_at_50', 0):.4f}  {row.path}")
    if not rows:
        cli.say("no releases: make one with `./beforehand build`")
    return {"releases": [_row(row) for row in rows], "pointer": msgspec.to_builtins(pointer)}


def _show(registry: Registry, args: argparse.Namespace) -> cli.Result:
    row = registry.get(args.id)
    manifest = read_manifest(releases_dir() / row.path, load_public_key(public_key_path()))
    acts = [act for act in registry.history() if act["release"] == row.id]
    cli.say(f"{row.id}: {row.status}, {manifest.content.model.num_items:,} items, {len(manifest.content.files)} files")
    for name, value in sorted(row.metrics.items()):
        cli.say(f"  {name} {value:.4f}")
    for act in acts:
        cli.say(f"  {act['act']} by {act['who']}: {act['why']}")
    page = ensure_page(releases_dir() / row.path, manifest)
    cli.say(f"  the report with plots: {page}" if page else "  there is no page with plots, and none can be written")
    page_path = str(page) if page else None
    return {**_row(row), "manifest": msgspec.to_builtins(manifest), "history": acts, "page": page_path}


def _promote(registry: Registry, args: argparse.Namespace) -> cli.Result:
    with _alone(registry, args) as lease:
        _verified(registry.get(args.id))
        changed = registry.promote(args.id, why=args.why or "asked for", force=args.force, lease=lease)
    cli.say(f"{args.id} is current" if changed else f"{args.id} was current already")
    return {"release": args.id, "changed": changed}


def _canary(registry: Registry, args: argparse.Namespace) -> cli.Result:
    with _alone(registry, args):
        _verified(registry.get(args.id))
        changed = registry.canary(args.id, args.share, why=args.why or "asked for")
    cli.say(f"{args.id} is tried by {args.share:.3g} of the users" if changed else "it was so already")
    return {"release": args.id, "share": args.share, "changed": changed}


def _end_canary(registry: Registry, args: argparse.Namespace) -> cli.Result:
    ended = registry.end_canary(why=args.why)
    cli.say(f"{ended} is tried no longer" if ended else "no release was tried")
    return {"release": ended, "changed": ended is not None}


def _rollback(registry: Registry, args: argparse.Namespace) -> cli.Result:
    with _alone(registry, args) as lease:
        back = registry.rollback(why=args.why, leaving=args.id, lease=lease)
    cli.say(f"back to {back}" if back else f"{args.id} is not current: nothing to do")
    return {"release": back or registry.pointer().current, "changed": back is not None}


def _gc(registry: Registry, args: argparse.Namespace) -> cli.Result:
    if args.keep < 0:
        raise ReleaseError("a number of releases", where="--keep", value=args.keep, mend="As in 2; 0 keeps none.")
    urls = args.url or [url for url in [os.environ.get("BEFOREHAND_ONLINE", "")] if url]
    try:
        before = wall_ms() - int(seconds(args.older_than) * 1000)
    except ValueError as error:
        raise ReleaseError(str(error), where="--older-than", value=args.older_than, mend="As in 7d.") from None
    store = Store(args.store) if args.store or os.environ.get(VARIABLE) else None
    with _alone(registry, args):
        there = [row for row in registry.all() if row.status is not Status.BAD or (releases_dir() / row.path).is_dir()]
        rows = removable(there, registry.pointer(), reported(urls), keep=args.keep, made_before_ms=before)
        freed = 0
        for row in rows:
            freed += remove(registry, row, store, why=args.why or "gc") if args.yes else _size(row)
            cli.say(f"{'deleted' if args.yes else 'would delete'} {row.id} ({row.status})")
    cli.say(f"{len(rows)} releases, {freed:,} bytes" + ("" if args.yes else "; nothing was done: say --yes"))
    return {"releases": [row.id for row in rows], "bytes": freed, "deleted": args.yes, "asked": urls}


def _push(registry: Registry, args: argparse.Namespace) -> cli.Result:
    row = registry.get(args.id)
    _verified(row)
    store = Store(args.store)
    manifest = read_manifest(releases_dir() / row.path, load_public_key(public_key_path()))
    changed = store.push(releases_dir() / row.path, manifest)
    cli.say(f"{args.id} is in {store.url}" + ("" if changed else ", as before"))
    return {"release": args.id, "store": store.url, "changed": changed}


def _fetch(_registry: Registry, args: argparse.Namespace) -> cli.Result:
    manifest = Store(args.store).fetch(args.id)
    cli.say(f"{manifest.id} is here, verified: promote it with `./beforehand release promote {manifest.id}`")
    return {"release": manifest.id, "files": len(manifest.content.files)}


def _store(_registry: Registry, args: argparse.Namespace) -> cli.Result:
    store = Store(args.store)
    ids = store.ids()
    for name in ids:
        cli.say(name)
    return {"store": store.url, "releases": ids}


@contextmanager
def _alone(registry: Registry, args: argparse.Namespace) -> Iterator[Lease]:
    """One act at a time on what serves: a second operator is told who and why."""
    about = f"release {args.act} {args.id or ''}: {args.why or 'asked for'}"
    with held(registry.database, PROMOTION, about=about) as (lease, _):
        yield lease


def _size(row: ReleaseRow) -> int:
    folder = releases_dir() / row.path
    return size_of(folder) if folder.is_dir() else 0


def _bad(registry: Registry, args: argparse.Namespace) -> cli.Result:
    registry.mark_bad(args.id, why=args.why)
    cli.say(f"{args.id} is bad and will not be promoted again")
    return {"release": args.id, "status": "bad"}


def _verify(registry: Registry, args: argparse.Namespace) -> cli.Result:
    num_files = _verified(registry.get(args.id))
    cli.say(f"{args.id}: signature and {num_files} files are right")
    return {"release": args.id, "files": num_files, "verified": True}


def _verified(row: ReleaseRow) -> int:
    """Check signature and files; a damaged release is never promoted."""
    manifest = read_manifest(releases_dir() / row.path, load_public_key(public_key_path()))
    verify_files(releases_dir() / row.path, manifest)
    return len(manifest.content.files)


def _row(row: ReleaseRow) -> dict[str, Any]:
    return msgspec.to_builtins(row)


ACTS = {
    "list": _list,
    "show": _show,
    "verify": _verify,
    "canary": _canary,
    "end-canary": _end_canary,
    "promote": _promote,
    "rollback": _rollback,
    "bad": _bad,
    "gc": _gc,
    "push": _push,
    "fetch": _fetch,
    "store": _store,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("act", choices=ACTS)
    add("id", nargs="?", help="of the release; rollback: leave this one, and do nothing when it is not current")
    add("--why", default="", help="kept with the act; needed for rollback, bad, end-canary and --force")
    add("--force", action="store_true", help="promote a release that is marked bad, or while another is tried")
    add("--share", type=float, default=0.05, metavar="S", help="canary: of the users (default: 0.05)")
    add("--store", default="", metavar="URL", help=f"push, fetch, store, gc: object store (default: ${VARIABLE})")
    add("--keep", type=int, default=2, metavar="N", help="gc: newest releases kept besides those that serve (2)")
    add("--older-than", default="7d", metavar="AGE", help="gc: leave younger ones (default: 7d)")
    add("--url", action="append", metavar="URL", help="gc: services asked what they use (default: $BEFOREHAND_ONLINE)")
    add("--yes", action="store_true", help="gc: really delete; without it nothing is done")
