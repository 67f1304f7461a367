"""``./beforehand items``: what is where in the semantic index of a release."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import numpy as np

from offline.index.flat import SemanticIndex, id_arrays
from schemas import cli
from schemas.errors import DataError, ReleaseError
from schemas.locations import public_key_path
from schemas.registry import Registry, ReleaseRow
from schemas.release import ARRAYS, CATALOGUE, Catalogue, load_public_key, read_manifest

SHOWN = 20


def items(args: argparse.Namespace) -> cli.Result:
    """Run the verb: the item of an id, or the items under a prefix."""
    row = _release(args.release)
    index, catalogue = read_release(Path(row.path))
    numbers = [_number(index, args.id)] if args.id is not None else index.under(_codes(args.prefix))
    found = [
        {
            "item_id": catalogue.item_ids[number],
            "number": number,
            "sid": index.codes[number].tolist(),
            "title": catalogue.titles[number],
        }
        for number in numbers[: args.limit]
    ]
    for one in found:
        cli.say(f"{'-'.join(map(str, one['sid'])):<16} {one['item_id']}  {one['title']}")
    if len(numbers) > len(found):
        cli.say(f"… and {len(numbers) - len(found):,} more")
    return {"release": row.id, "total": len(numbers), "items": found}


def read_release(folder: Path) -> tuple[SemanticIndex, Catalogue]:
    """The index of a release: its trie memory-mapped, with the ids of its catalogue.

    Raises:
        ReleaseError: the manifest's signature is wrong, or a file is missing.
    """
    levels = read_manifest(folder, load_public_key(public_key_path())).content.model.levels
    trie = [f"{name}_{level}" for level in range(levels) for name in ("offset", "child")]
    try:
        arrays = {name: np.load(folder / ARRAYS / f"{name}.npy", mmap_mode="r") for name in (*trie, "item_codes")}
        catalogue = msgspec.msgpack.decode((folder / CATALOGUE).read_bytes(), type=Catalogue)
    except OSError as error:
        mend = "Publish the release again."
        raise ReleaseError("a file can't be read", where=str(error.filename), mend=mend) from None
    return SemanticIndex({**arrays, **id_arrays(catalogue.item_ids)}), catalogue


def _release(wanted: str | None) -> ReleaseRow:
    registry = Registry()
    row = registry.get(wanted) if wanted else registry.current()
    if row is None:
        raise ReleaseError("no release is current", where="registry", mend="Build one, or name one with --release.")
    return row


def _number(index: SemanticIndex, item_id: str) -> int:
    number = index.number_of(item_id)
    if number is None:
        raise DataError("no such item in this release", where="--id", value=item_id, mend="See `items --prefix`.")
    return number


def _codes(text: str) -> list[int]:
    try:
        return [int(code) for code in text.replace("-", ",").split(",") if code.strip()]
    except ValueError:
        raise DataError("a prefix is codes", where="--prefix", value=text, mend="As in --prefix 12,7.") from None


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--id", help="of one item")
    which.add_argument("--prefix", default="", metavar="C,C", help="the items under these codes (default: all)")
    parser.add_argument("--release", metavar="ID", help="default: the current one")
    parser.add_argument("--limit", type=int, default=SHOWN, help="of items shown (default: %(default)s)")
