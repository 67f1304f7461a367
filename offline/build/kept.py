"""What an insertion needs of a build, and what it keeps itself.

::

    work/DATA/insert/changes.jsonl           the last word on each item that came by ``insert`` or the catalogue topic
    work/DATA/insert/RELEASE/*.npy           of the build that made RELEASE: what its stages knew of its items
    work/DATA/insert/RELEASE/items.parquet   items that were inserted, in the order they came, with the codes they got

So an insertion into the release that serves does not depend on what the stages do meanwhile, and a new build begins
with the same changes.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from offline.build.stage import Build, write_atomically
from schemas.errors import DataError
from schemas.item_change import ItemChange, decode_change, encode_change
from schemas.registry import Registry

ENCODER = "encoder.safetensors"
"""Of an RQ-VAE only: what makes latents of vectors."""
FILES = {"encode": ("text.npy",), "index": ("order.npy", "vectors.npy", "centroids.npy", ENCODER)}
INSERTED = {
    "item_id": pl.String,
    "title": pl.String,
    "category": pl.String,
    "vector": pl.List(pl.Float32),
    "codes": pl.List(pl.Int64),
}


def keep_for_insertion(build: Build, release: str) -> None:
    """Keep what insertions into the release will need; what is kept for releases that are gone is deleted."""
    parent = build.work / "insert"
    folder = parent / release
    folder.mkdir(parents=True, exist_ok=True)
    for stage, names in FILES.items():
        for name in names:
            path = build.folder(stage) / name
            if path.exists() and not (folder / name).exists():
                _link(path, folder / name)
    known = {row.id for row in Registry().all()} | {release}
    for path in parent.iterdir():
        if path.is_dir() and path.name not in known:
            shutil.rmtree(path, ignore_errors=True)


def _link(path: Path, to: Path) -> None:
    """A second name costs nothing, and stays when the stage's folder goes."""
    try:
        os.link(path, to)
    except OSError:  # another file system, or one without links
        shutil.copyfile(path, to)


class Kept:
    """What is kept for one release that a build made."""

    def __init__(self, build: Build, release: str) -> None:
        """Raises ``DataError`` when nothing is kept for it."""
        self.folder = build.work / "insert" / release
        self._changes = build.work / "insert" / "changes.jsonl"
        if not (self.folder / "text.npy").exists():
            raise DataError(
                "nothing is kept of the build that made this release",
                where=str(self.folder.parent),
                value=release,
                mend=f"Run `./beforehand build publish --force --data {build.name}`, or build and promote a new one.",
            )

    def array(self, name: str) -> NDArray[Any]:
        """One of the build's arrays; ``text`` by item number, as the others are."""
        array = np.load(self.folder / f"{name}.npy")
        return array[np.load(self.folder / "order.npy")] if name == "text" else array

    def inserted(self) -> pl.DataFrame:
        """Items in the order they came: ``INSERTED``; ``vector`` is of the text."""
        path = self.folder / "items.parquet"
        if path.exists():
            return pl.read_parquet(path)
        return pl.DataFrame(schema=INSERTED)

    def keep_inserted(self, items: pl.DataFrame) -> None:
        """Replace them."""
        raw = io.BytesIO()
        items.write_parquet(raw)
        write_atomically(self.folder / "items.parquet", raw.getvalue())

    def changes(self) -> dict[str, ItemChange]:
        """By item."""
        if not self._changes.exists():
            return {}
        read = (decode_change(line, str(self._changes)) for line in self._changes.read_bytes().splitlines())
        return {change.item_id: change for change in read}

    def keep_changes(self, changes: Mapping[str, ItemChange]) -> None:
        """Replace them."""
        write_atomically(self._changes, b"".join(encode_change(change) + b"\n" for change in changes.values()))


def latest(before: Mapping[str, ItemChange], new: Iterable[ItemChange]) -> dict[str, ItemChange]:
    """The last word on each item: the largest ``at``, and of equal ones the later."""
    found = dict(before)
    for change in new:
        known = found.get(change.item_id)
        if known is None or change.at >= known.at:
            found[change.item_id] = change
    return found
