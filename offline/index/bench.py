"""``./beforehand bench index``: the semantic index at the size of a large shop, on made-up items."""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from offline.index.codes import Codebook, build_codes
from offline.index.flat import SemanticIndex, build
from offline.index.insert import Inserter, grow
from offline.index.nearest import Nearest, unit_rows
from schemas import cli

Floats = NDArray[np.float32]
CLUSTERS = ((64, 1.0), (2_000, 0.8), (40_000, 0.6))
"""Nested clusters, how many and how far from their parent's centre; items lie .4 around the innermost."""
QUERIES, TOP = 200, 100
INSERTED = 1_000
HNSW_LINKS, HNSW_BUILD, HNSW_SEARCH = 16, 60, 100


def run(args: argparse.Namespace) -> cli.Result:
    """Build, look up and grow an index of ``--items`` made-up items, on one thread."""
    faiss.omp_set_num_threads(1)
    rng = np.random.default_rng(args.seed)
    vectors = made_up(rng, args.items + INSERTED, args.width)
    old, new = vectors[: args.items], vectors[args.items :]
    with cli.step("codes") as made, cpu() as spent:
        book = build_codes(old, args.levels, args.codes, args.seed)
        made(f"{book.reassigned:,} collisions mended, {book.moved:,} left full prefixes")
    result = {"items": args.items, "levels": args.levels, "codes": args.codes, "codes_cpu_s": spent()}
    with tempfile.TemporaryDirectory() as folder:
        result |= _flat(book, Path(folder), rng)
    result |= _inserted(book, new)
    result |= _neighbours(old, rng, compare=args.compare)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**result, "peak_memory_bytes": peak_bytes}


def made_up(rng: np.random.Generator, num: int, width: int) -> Floats:
    """Vectors [num, width] of length one in nested clusters."""
    rows = np.zeros((1, width), np.float32)
    for size, far in (*CLUSTERS, (num, 0.4)):
        rows = rows[rng.integers(0, len(rows), size)]
        rows += rng.standard_normal(rows.shape, np.float32) * np.float32(far)
    return unit_rows(rows)


def _flat(book: Codebook, folder: Path, rng: np.random.Generator) -> dict[str, float]:
    ids = [f"item-{number}" for number in range(len(book.codes))]
    with cli.step("index") as made, cpu() as spent:
        index, _ = build(book.codes, ids)
        num_bytes = index.write(folder)
        made(f"{num_bytes / 1e6:,.0f} MB")
    build_cpu_s = spent()
    mapped = SemanticIndex.open(folder)
    some = mapped.codes[rng.integers(0, len(mapped), QUERIES)]
    prefixes = [row[: 1 + place % mapped.levels].tolist() for place, row in enumerate(some)]
    return {
        "build_cpu_s": build_cpu_s,
        "bytes": num_bytes,
        "prefix_query_ms": each_ms([lambda prefix=prefix: mapped.under(prefix) for prefix in prefixes]),
        "id_query_ms": each_ms([lambda n=n: mapped.number_of(f"item-{n}") for n in range(QUERIES)]),
    }


def _inserted(book: Codebook, new: Floats) -> dict[str, float]:
    order = np.lexsort(book.codes.T[::-1])
    with cli.step(f"{INSERTED:,} new items") as made:
        begun = time.perf_counter()
        codes = book.codes[order]
        added = Inserter(codes, book.centroids).insert(new)
        assigned_s = time.perf_counter() - begun
        grow(codes, added).trie()
        reachable_s = time.perf_counter() - begun
        made(f"in the trie after {reachable_s:.1f} s")
    return {"insert_ms": round(assigned_s / INSERTED * 1000, 4), "inserted_reachable_s": round(reachable_s, 3)}


def _neighbours(vectors: Floats, rng: np.random.Generator, *, compare: bool) -> dict[str, object]:
    queries = vectors[rng.integers(0, len(vectors), QUERIES)]
    near = queries + rng.standard_normal(queries.shape, np.float32) * np.float32(0.02)
    queries = unit_rows(near.astype(np.float32))
    wanted = Nearest(vectors, exact=True).search(queries, TOP)[1]
    result: dict[str, object] = {}
    makers: dict[str, Callable[[Floats], Nearest | faiss.Index]] = {"inverted file": lambda v: Nearest(v, exact=False)}
    if compare:
        makers |= {"hnsw": _hnsw, "exact": lambda v: Nearest(v, exact=True)}
    for name, maker in makers.items():
        with cli.step(f"neighbours, {name}") as made, cpu() as spent:
            index = maker(vectors)
            build_cpu_s = spent()
            query_ms = each_ms([lambda q=q, i=index: i.search(q, TOP) for q in np.split(queries, QUERIES)])
            found = index.search(queries, TOP)[1]
            recall = float(np.mean([np.isin(row, best).mean() for row, best in zip(found, wanted, strict=True)]))
            made(f"built in {build_cpu_s} CPU-s, {query_ms} ms a query, recall@{TOP} {recall:.4f}")
        del index
        measured = {"build_cpu_s": build_cpu_s, "query_ms": query_ms, f"recall_at_{TOP}": round(recall, 4)}
        if name == "inverted file":
            result |= {f"neighbour_{key}": value for key, value in measured.items()}
        if compare:
            result[name] = measured
    return result


def _hnsw(vectors: Floats) -> faiss.Index:
    made: Any = faiss.IndexHNSWSQ  # its stub has the types of another overload
    index = made(vectors.shape[1], faiss.ScalarQuantizer.QT_8bit, HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = HNSW_BUILD
    index.train(vectors[:: max(1, len(vectors) // 100_000)])
    index.add(vectors)
    index.hnsw.efSearch = HNSW_SEARCH
    return index


def each_ms(calls: list[Callable[[], object]]) -> float:
    """Median milliseconds of a call, after one round to warm up."""
    took = []
    for timed in (False, True):
        for call in calls:
            begun = time.perf_counter()
            call()
            if timed:
                took.append(time.perf_counter() - begun)
    return round(float(np.median(took)) * 1000, 4)


@contextmanager
def cpu() -> Iterator[Callable[[], float]]:
    """CPU-seconds of this process since the block began."""
    begun = time.process_time()
    yield lambda: round(time.process_time() - begun, 2)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The subject's options."""
    add = parser.add_argument
    add("subject", choices=["index"])
    add("--items", type=int, default=1_000_000, help="how many (default: %(default)s)")
    add("--width", type=int, default=128, help="of the vectors (default: %(default)s)")
    add("--levels", type=int, default=4, help="of a semantic ID (default: %(default)s)")
    add("--codes", type=int, default=1024, help="per level (default: %(default)s)")
    add("--seed", type=int, default=1)
    add("--compare", action="store_true", help="measure HNSW and exact search beside the inverted file")
