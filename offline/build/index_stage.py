"""Stage ``index``: vectors, semantic IDs and neighbour lists."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import polars as pl
from safetensors.numpy import save_file

from offline.build.catalogue import read_data, save
from offline.build.kept import ENCODER
from offline.build.stage import Build, Result
from offline.index.codes import build_codes
from offline.index.links import KEPT
from offline.index.neighbours import choose, make_links, nearest_items, neighbour_lists, window_neighbours
from offline.index.trie import sid_order
from offline.index.vectors import item_vectors
from offline.index.words import word_matrix
from offline.metrics import quality

NEAREST = 10


def build_index(build: Build, folder: Path) -> Result:
    """Item numbers follow the semantic IDs; ``order.npy`` is the catalogue's row of each number."""
    index, model = build.plan.index, build.plan.model
    keep = build.plan.nearline.neighbours
    catalogue = pl.read_parquet(build.data / "catalogue.parquet")
    rows, num_items = catalogue["item_id"], len(catalogue)
    by_row = read_data(build, {item: row for row, item in enumerate(rows)})
    words = word_matrix(catalogue["text"].to_list(), catalogue.select("brand", "category").rows())
    text = np.load(build.folder("encode") / "text.npy")
    vectors = item_vectors(by_row.train, [words, text], index.vector_width, model.seed)
    book = build_codes(vectors, index.levels, index.codes, model.seed, index.method)
    order = sid_order(book.codes)
    vectors = vectors[order]
    data = read_data(build, {rows[int(row)]: number for number, row in enumerate(order)})
    links = make_links(data.train, words[order], model.window, KEPT)
    settings = choose(links, data.validation, keep)
    lists = neighbour_lists(links, settings, index.neighbours)
    found = quality(
        window_neighbours(data.validation, lists, settings.decay, keep, repeats=settings.repeats).items,
        [case.target for case in data.validation],
    )
    nearest = nearest_items(vectors, NEAREST)
    save(folder, order=order, vectors=vectors, codes=book.codes[order], nearest=nearest, centroids=book.centroids)
    if book.encoder is not None:
        save_file(book.encoder.arrays(), folder / ENCODER)
    save(folder, items=lists.items, scores=lists.scores)
    fewer = "" if book.num_codes == index.codes else f", {book.num_codes} codes a level (of {index.codes}: few items)"
    return {
        "items": num_items,
        "num_codes": book.num_codes,
        "moved": book.moved,
        "reassigned": book.reassigned,
        "method": index.method,
        "levels": msgspec.to_builtins(book.levels),
        "neighbours": msgspec.to_builtins(settings),
        "validation": found,
        "says": f"{len(rows):,} items, {book.reassigned:,} collisions mended, {book.moved} left full prefixes{fewer}",
    }
