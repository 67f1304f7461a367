"""Stage ``index``: vectors, semantic IDs and neighbour lists."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import polars as pl
from safetensors.numpy import save_file

from offline.build.catalogue import read_data, save
from offline.build.stage import Build, Result
from offline.index.codes import build_codes
from offline.index.neighbours import choose, content_links, fold_lists, top_of_rows, transitions
from offline.index.trie import sid_order
from offline.index.vectors import item_vectors

NEAREST = 10
ENCODER = "encoder.safetensors"
"""Of an RQ-VAE only: what makes latents of vectors, for items that come later."""


def build_index(build: Build, folder: Path) -> Result:
    """Item numbers follow the semantic IDs; ``order.npy`` is the catalogue's row of each number."""
    index, model = build.plan.index, build.plan.model
    rows = pl.read_parquet(build.data / "catalogue.parquet", columns=["item_id"])["item_id"]
    by_row = read_data(build, {item: row for row, item in enumerate(rows)})
    text = np.load(build.folder("encode") / "text.npy")
    vectors = item_vectors(by_row.train, text, index.vector_width, model.seed)
    book = build_codes(vectors, index.levels, index.codes, model.seed, index.method)
    order = sid_order(book.codes)
    vectors = vectors[order]
    data = read_data(build, {rows[int(row)]: number for number, row in enumerate(order)})
    bought = np.bincount(data.train.item, minlength=len(rows))
    alike = content_links(vectors, index.neighbours)
    settings, lists, found = choose(
        transitions(data.train, len(rows), model.window),
        alike,
        bought,
        data.validation,
        num_neighbours=index.neighbours,
        keep=build.plan.nearline.neighbours,
    )
    folds = fold_lists(data.train, alike, settings, index.neighbours, model.window)
    nearest = top_of_rows(alike, NEAREST).items
    nearest = np.where(nearest < 0, np.arange(len(rows), dtype=np.int32)[:, None], nearest)
    save(folder, order=order, vectors=vectors, codes=book.codes[order], nearest=nearest, centroids=book.centroids)
    if book.encoder is not None:
        save_file(book.encoder.arrays(), folder / ENCODER)
    save(folder, items=lists.items, scores=lists.scores)
    for fold, part in enumerate(folds):
        save(folder, **{f"items_{fold}": part.items, f"scores_{fold}": part.scores})
    fewer = "" if book.num_codes == index.codes else f", {book.num_codes} codes a level (of {index.codes}: few items)"
    return {
        "items": len(rows),
        "num_codes": book.num_codes,
        "moved": book.moved,
        "reassigned": book.reassigned,
        "method": index.method,
        "levels": msgspec.to_builtins(book.levels),
        "decay": settings.decay,
        "popularity": settings.popularity,
        "own": settings.own,
        "validation": found,
        "says": f"{len(rows):,} items, {book.reassigned:,} collisions mended, {book.moved} left full prefixes{fewer}",
    }
