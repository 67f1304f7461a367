"""``./beforehand insert``: new items into the newest release of a data set, within a minute and without training.

Items that were inserted stay: they are kept beside the build (``work/DATA/insert/``) with the codes they were given,
and every further insertion begins with them. A new build begins anew: its catalogue must hold them.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from safetensors.numpy import load_file

from offline.build.accounts import one_at_a_time
from offline.build.encode_stage import encode_texts
from offline.build.index_stage import ENCODER
from offline.build.inserted_release import Base, catalogue_of, newest_release, publish_grown, read_base
from offline.build.insertion import find_alike, grown_arrays
from offline.build.stage import Build, write_atomically
from offline.build.text_encoder import encoder_files
from offline.data.generic import read_catalogue
from offline.index.insert import Inserter, grow
from offline.index.rqvae import Encoder
from schemas import cli
from schemas.plan import load_plan
from schemas.registry import Registry

Floats = NDArray[np.float32]
KEPT = ("item_id", "title", "text", "category", "brand")


def insert_items(args: argparse.Namespace) -> cli.Result:
    """Run the verb."""
    begun = time.monotonic()
    build = Build(args.data, load_plan(overrides=args.set), threads=args.threads)
    found, rejected = read_catalogue(args.items)
    with one_at_a_time(build.registry.database, build.name):
        base, before = read_base(build), _inserted_before(build)
        there = {*base.catalogue.item_ids, *before["item_id"]}
        new = found.select(KEPT).filter(~pl.col("item_id").is_in(list(there)))
        with cli.step("insert") as made:
            every = pl.concat([before, _with_codes(build, base, before, new)]) if len(new) else before
            release, fresh = _published(base, every)
            if len(new):
                _keep(build, every)
            made(f"{len(new):,} new items, {len(found) - len(new):,} known, release {release}")
        changed = Registry().promote(release, why=f"{len(new)} new items") if args.promote else False
    for row in rejected.head(20).iter_rows(named=True):
        cli.say(f"  {row['file']} row {row['row']}: {row['reason']} ({row['value']!r})")
    return {
        "release": release,
        "base": base.id,
        "new": fresh,
        "inserted": len(new),
        "known": len(found) - len(new),
        "rejected": len(rejected),
        "items": len(base.catalogue.item_ids) + len(every),
        "promoted": changed,
        "seconds": round(time.monotonic() - begun, 2),
    }


def _with_codes(build: Build, base: Base, before: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """``new`` with the text vectors and the codes that the rule gives, after those inserted before."""
    said = _encoded(build, new["text"].to_list())
    folder = build.folder("index")
    vectors = find_alike(base.text, said).mean(np.load(folder / "vectors.npy"))
    if (folder / ENCODER).exists():
        vectors = Encoder(**load_file(folder / ENCODER))(vectors)
    taken = [base.codes, *([_column(before, "codes").astype(np.int64)] if len(before) else [])]
    codes = np.concatenate(taken)
    codes = codes[np.lexsort(codes.T[::-1])]
    given = Inserter(codes, np.load(folder / "centroids.npy")).insert(vectors)
    return new.with_columns(
        vector=pl.Series(said.tolist(), dtype=pl.List(pl.Float32)),
        codes=pl.Series(given.tolist(), dtype=pl.List(pl.Int64)),
    )


def _published(base: Base, items: pl.DataFrame) -> tuple[str, bool]:
    """The release that holds the base and ``items``, and whether it is new."""
    newest = newest_release(base.id)
    if len(catalogue_of(newest).item_ids) == len(base.codes) + len(items):
        return newest.id, False
    categories = [*base.catalogue.categories]
    categories += sorted(set(items["category"]) - set(categories))
    number = {name: place for place, name in enumerate(categories)}
    grown = grow(base.codes, _column(items, "codes").astype(np.int64))
    alike = find_alike(base.text, _column(items, "vector").astype(np.float32))
    arrays = grown_arrays(base.arrays, grown, alike, np.array([number[name] for name in items["category"]]))
    return publish_grown(base, grown, arrays, items, categories)


def _encoded(build: Build, texts: list[str]) -> Floats:
    files = encoder_files(build.plan.index.encoder, build.threads)
    with tempfile.TemporaryDirectory() as folder:
        vectors = encode_texts({text: text for text in texts}, files, Path(folder))
    return np.stack([vectors[text] for text in texts]).astype(np.float32)


def _column(items: pl.DataFrame, name: str) -> NDArray[np.generic]:
    return np.array(items[name].to_list())


def _path(build: Build) -> Path:
    return build.work / "insert" / build.records["index"].hash / "items.parquet"


def _inserted_before(build: Build) -> pl.DataFrame:
    if _path(build).exists():
        return pl.read_parquet(_path(build))
    strings = dict.fromkeys(KEPT, pl.String)
    return pl.DataFrame(schema={**strings, "vector": pl.List(pl.Float32), "codes": pl.List(pl.Int64)})


def _keep(build: Build, items: pl.DataFrame) -> None:
    path = _path(build)
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = io.BytesIO()
    items.write_parquet(raw)
    write_atomically(path, raw.getvalue())


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("--items", type=Path, required=True, metavar="FILE", help="CSV or Parquet: item_id, title[, text, category, …]")
    add("--data", default="journey", metavar="NAME", help="the data set whose release they go into (default: journey)")
    add("--promote", action="store_true", help="make the release the current one")
    add("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="as at the build")
    cores = len(os.sched_getaffinity(0))
    add("--threads", type=int, default=cores, help=f"of the text encoder (default: {cores})")
