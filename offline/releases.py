"""``./beforehand release``: list, show, verify, promote, roll back, mark as bad."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from schemas import cli
from schemas.errors import ReleaseError
from schemas.locations import public_key_path
from schemas.registry import Registry, ReleaseRow
from schemas.release import load_public_key, read_manifest, verify_files

ACTS = ("list", "show", "promote", "rollback", "bad", "verify")
NEEDS_ID = ("show", "promote", "bad", "verify")
NEEDS_WHY = ("rollback", "bad")


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
    acts = {"list": _list, "show": _show, "promote": _promote, "rollback": _rollback, "bad": _bad, "verify": _verify}
    return acts[args.act](Registry(), args)


def _list(registry: Registry, _args: argparse.Namespace) -> cli.Result:
    rows = registry.all()
    for row in rows:
        cli.say(f"{row.id}  {row.status:8}  Recall@50 {row.metrics.get('recall_at_50', 0):.4f}  {row.path}")
    if not rows:
        cli.say("no releases: make one with `./beforehand build`")
    return {"releases": [_row(row) for row in rows]}


def _show(registry: Registry, args: argparse.Namespace) -> cli.Result:
    row = registry.get(args.id)
    manifest = read_manifest(Path(row.path), load_public_key(public_key_path()))
    acts = [act for act in registry.history() if act["release"] == row.id]
    cli.say(f"{row.id}: {row.status}, {manifest.content.model.num_items:,} items, {len(manifest.content.files)} files")
    for name, value in sorted(row.metrics.items()):
        cli.say(f"  {name} {value:.4f}")
    for act in acts:
        cli.say(f"  {act['act']} by {act['who']}: {act['why']}")
    return {**_row(row), "manifest": msgspec.to_builtins(manifest), "history": acts}


def _promote(registry: Registry, args: argparse.Namespace) -> cli.Result:
    _verified(registry.get(args.id))
    changed = registry.promote(args.id, why=args.why or "asked for", force=args.force)
    cli.say(f"{args.id} is current" if changed else f"{args.id} was current already")
    return {"release": args.id, "changed": changed}


def _rollback(registry: Registry, args: argparse.Namespace) -> cli.Result:
    back = registry.rollback(why=args.why)
    cli.say(f"back to {back}")
    return {"release": back, "changed": True}


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
    manifest = read_manifest(Path(row.path), load_public_key(public_key_path()))
    verify_files(Path(row.path), manifest)
    return len(manifest.content.files)


def _row(row: ReleaseRow) -> dict[str, Any]:
    return msgspec.to_builtins(row)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("act", choices=ACTS)
    parser.add_argument("id", nargs="?", help="of the release")
    parser.add_argument("--why", default="", help="kept with the act; needed for rollback, bad and --force")
    parser.add_argument("--force", action="store_true", help="promote a release that is marked bad")
