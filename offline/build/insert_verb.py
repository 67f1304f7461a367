"""``./beforehand insert``: new, changed and withdrawn items into the release that serves, without training.

What was changed stays: it is kept beside the build (``offline.build.kept``), and every further insertion, and the next
build's first one, begins with it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file

from offline.build.accounts import one_at_a_time
from offline.build.encode_stage import encode_texts
from offline.build.inserted_release import Base, Changed, family_of, inserted_into, publish_grown, read_base
from offline.build.insertion import find_alike, grown_arrays
from offline.build.kept import ENCODER, INSERTED, Kept, latest
from offline.build.stage import Build
from offline.build.text_encoder import encoder_files
from offline.data.generic import read_catalogue
from offline.data.source import no_rejects
from offline.index.insert import Inserter, grow
from offline.release_gc import removable, remove
from schemas import cli
from schemas.errors import BeforehandError, DataError, ReleaseError
from schemas.item_change import Change, ItemChange, decode_change
from schemas.locations import releases_dir
from schemas.plan import load_plan
from schemas.registry import Registry, ReleaseRow
from schemas.registry.database import wall_ms
from schemas.release import Catalogue

Floats = NDArray[np.float32]
ROWS = ("item_id", "title", "text", "category", "brand")


def insert_items(args: argparse.Namespace) -> cli.Result:
    """Run the verb."""
    return _listen(args) if args.listen else _insert(args)


def _listen(args: argparse.Namespace) -> cli.Result:
    """One insertion after the other: for each line on stdin, a file of changes, one line with the result on stdout.

    The imports take several times as long as an insertion.
    """
    for line in sys.stdin:
        try:
            told = _insert(argparse.Namespace(**(vars(args) | {"changes": Path(line.strip())})))
        except BeforehandError as error:
            cli.say(f"refused: {error}")
            told = {"error": error.problem, "where": error.where, "mend": error.mend, "code": error.exit_code}
        cli.emit(told)
    return None


def _insert(args: argparse.Namespace) -> dict[str, Any]:
    begun = time.monotonic()
    build = Build(args.data, load_plan(overrides=args.set), threads=args.threads)
    sent = _read_changes(args.changes) if args.changes else []
    no_rows = pl.DataFrame(schema=dict.fromkeys(ROWS, pl.String)), no_rejects()
    rows, rejected = read_catalogue(args.items) if args.items else no_rows
    # Not the build's lease: a build that trains for hours must not hold back what is withdrawn.
    with one_at_a_time(build.registry.database, f"{build.name}:insert"), cli.step("insert") as made:
        parent = _parent()
        base = read_base(family_of(parent))
        kept = Kept(build, base.id)
        before, there = kept.changes(), kept.inserted()
        new = rows.filter(~pl.col("item_id").is_in([*base.catalogue.item_ids, *before, *there["item_id"]]))
        changes = latest(before, [*_as_changes(new), *sent])
        inserted = _with_new(build, base, kept, changes)
        changed = _changed(base, kept, inserted, changes)
        release, fresh = publish_grown(base, changed, parent)
        kept.keep_inserted(inserted)
        kept.keep_changes(changes)
        added = len(inserted) - len(there)
        made(f"{added:,} new items, {changed.grown.num_live:,} in all, {len(changed.withdrawn):,} withdrawn: {release}")
    promoted = args.promote and Registry().succeed(release, parent.id, why=f"{added} new items")
    if promoted and args.keep is not None:
        _remove_superseded(base.id, args.keep)
    for row in rejected.head(20).iter_rows(named=True):
        cli.say(f"  {row['file']} row {row['row']}: {row['reason']} ({row['value']!r})")
    return {
        "release": release,
        "base": base.id,
        "new": fresh,
        "inserted": added,
        "known": len(rows) - len(new),
        "rejected": len(rejected),
        "items": changed.grown.num_live,
        "withdrawn": len(changed.withdrawn),
        "promoted": promoted,
        "seconds": round(time.monotonic() - begun, 2),
    }


def _parent() -> ReleaseRow:
    current = Registry().current()
    if current is None:
        raise ReleaseError("no release is current", where="registry", mend="Build one, or promote one by its id.")
    return current


def _read_changes(path: Path) -> list[ItemChange]:
    """The changes of a file of one JSON object a line. Raises ``DataError``, naming the first bad line."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"can't be read: {error.strerror}", where=str(path), mend="Check the path.") from None
    return [decode_change(line, f"{path.name}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def _as_changes(rows: pl.DataFrame) -> list[ItemChange]:
    now = wall_ms()
    return [ItemChange(change=Change.ADDED, at=now, **row) for row in rows.select(ROWS).iter_rows(named=True)]


def _with_new(build: Build, base: Base, kept: Kept, changes: Mapping[str, ItemChange]) -> pl.DataFrame:
    """All inserted items: those before, and the new ones with the vectors and codes that the rule gives."""
    before = kept.inserted()
    there = {*base.catalogue.item_ids, *before["item_id"]}
    new = [one for one in changes.values() if one.item_id not in there and one.change is not Change.WITHDRAWN]
    if not new:
        return before
    said = _encoded(build, [one.text or one.title for one in new])
    vectors = find_alike(kept.array("text"), said).mean(kept.array("vectors"))
    if (kept.folder / ENCODER).exists():
        from offline.index.rqvae import Encoder  # noqa: PLC0415 — torch takes seconds to import

        vectors = Encoder(**load_file(kept.folder / ENCODER))(vectors)
    taken = [base.codes, *([_column(before, "codes").astype(np.int64)] if len(before) else [])]
    codes = np.concatenate(taken)
    codes = codes[np.lexsort(codes.T[::-1])]
    given = Inserter(codes, kept.array("centroids")).insert(vectors)
    added = {
        "item_id": [one.item_id for one in new],
        "title": [one.title for one in new],
        "category": [one.category for one in new],
        "vector": said.tolist(),
        "codes": given.tolist(),
    }
    return pl.concat([before, pl.DataFrame(added, schema=INSERTED)])


def _changed(base: Base, kept: Kept, inserted: pl.DataFrame, changes: Mapping[str, ItemChange]) -> Changed:
    """What the release that holds the base, ``inserted`` and ``changes`` is made of."""
    ids = [*base.catalogue.item_ids, *inserted["item_id"]]  # by serial
    names = base.catalogue.categories
    titles = [*base.catalogue.titles, *inserted["title"]]
    before = [names[number] for number in base.arrays["item_category"].tolist()]
    labels = [*before, *inserted["category"]]
    withdrawn: list[int] = []
    for serial, item_id in enumerate(ids):
        change = changes.get(item_id)
        if change is None:
            continue
        if change.change is Change.WITHDRAWN:
            withdrawn.append(serial)
        else:
            titles[serial], labels[serial] = change.title, change.category
    added = _column(inserted, "codes").astype(np.int64).reshape(-1, base.codes.shape[1])
    grown = grow(base.codes, added, withdrawn)
    categories = [*names, *sorted(set(labels) - set(names))]
    number = {name: place for place, name in enumerate(categories)}
    category = np.array([number[name] for name in labels], np.int64)
    text = kept.array("text")
    alike = find_alike(text, _column(inserted, "vector").astype(np.float32).reshape(len(inserted), text.shape[1]))
    place = np.concatenate([grown.old, grown.new])
    same = not len(inserted) and not withdrawn and titles == base.catalogue.titles and labels == before
    return Changed(
        grown,
        grown_arrays(base.arrays, grown, alike, category),
        Catalogue(_placed(ids, place), _placed(titles, place), categories),
        withdrawn,
        "" if same else hashlib.sha256(msgspec.msgpack.encode([ids, withdrawn, titles, labels])).hexdigest()[:16],
    )


def _placed(names: list[str], place: NDArray[np.int64]) -> list[str]:
    """``names`` by serial, in the order of their numbers."""
    return [names[serial] for serial in np.argsort(place).tolist()]


def _encoded(build: Build, texts: list[str]) -> Floats:
    files = encoder_files(build.plan.index.encoder, build.threads)
    with tempfile.TemporaryDirectory() as folder:
        vectors = encode_texts({text: text for text in texts}, files, Path(folder))
    return np.stack([vectors[text] for text in texts]).astype(np.float32)


def _column(items: pl.DataFrame, name: str) -> NDArray[np.generic]:
    return np.array(items[name].to_list())


def _remove_superseded(base: str, keep: int) -> None:
    """Delete what grew from ``base`` and neither serves nor may serve again, but the ``keep`` newest.

    A service or a worker that still has one open keeps its files until it lets go of them.
    """
    registry = Registry()
    family = [row for row in registry.all() if inserted_into(releases_dir() / row.path) == base]
    for row in removable(family, registry.pointer(), (), keep=keep, made_before_ms=wall_ms()):
        remove(registry, row, None, why="superseded by a later insertion")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("--items", type=Path, metavar="FILE", help="new items, CSV or Parquet: item_id, title[, text, category, brand]")
    add(
        "--changes",
        type=Path,
        metavar="FILE",
        help="added, changed and withdrawn items, a JSON object a line (schemas)",
    )
    add("--data", default="journey", metavar="NAME", help="the data set that the current release is made of (journey)")
    add("--listen", action="store_true", help="take the names of files of changes from stdin, one after the other")
    add("--promote", action="store_true", help="let the release take the place of the current one")
    add("--keep", type=int, metavar="N", help="delete superseded insertions but the N newest (default: none)")
    add("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="as at the build")
    cores = len(os.sched_getaffinity(0))
    add("--threads", type=int, default=cores, help=f"of the text encoder (default: {cores})")
