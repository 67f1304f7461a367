"""Stage ``lists``: the best items of each profile bucket, and of everybody. A Beam pipeline over the events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from offline.build.catalogue import read_data, read_index, save
from offline.build.pipelines import pipeline
from offline.build.stage import Build, Result
from schemas.api import MAX_K
from schemas.release import UNKNOWN_BUCKET

CHUNK = 100_000
HALF_LIFE_MS = 30 * 86_400_000
SHRINK = 500.0
"""Events' worth of everybody's taste in each bucket: a bucket of few users does not follow one of them."""
Floats = NDArray[np.float64]
Part = tuple[NDArray[np.int64], NDArray[np.int64], Floats]  # buckets, items, weights


class CountItems(beam.DoFn):
    """A part of the events → (bucket, weight of each item); everybody's too."""

    def __init__(self, num_items: int) -> None:
        super().__init__()
        self.num_items = num_items

    def process(self, element: Part) -> Iterator[tuple[int, Floats]]:
        """One part."""
        bucket, item, weight = element
        for one in np.unique(bucket):
            mine = bucket == one
            yield int(one), np.bincount(item[mine], weight[mine], self.num_items).astype(np.float64)
        if (bucket != UNKNOWN_BUCKET).any():
            known = bucket != UNKNOWN_BUCKET
            yield UNKNOWN_BUCKET, np.bincount(item[known], weight[known], self.num_items).astype(np.float64)


def _sum(parts: Iterable[Floats]) -> Floats:
    return np.sum(list(parts), axis=0)


def make_lists(build: Build, folder: Path) -> Result:
    """Writes ``cohort_items.npy`` and ``cohort_scores.npy`` (``schemas.graphs``); row 0 is ``popular``.

    An event weighs half as much for every 30 days of age. Score: the share among the bucket's events.
    """
    index = read_index(build)
    data = read_data(build, index.number)
    num_items, num_buckets = len(index.vectors), len(data.buckets.names)
    bucket = np.array([data.buckets.of(user) for user in data.train.users], np.int64)[data.train.user]
    weight = 0.5 ** ((data.train.at.max() - data.train.at) / HALF_LIFE_MS)
    order = np.argsort(bucket, kind="stable")
    parts = [
        (bucket[some], data.train.item[some], weight[some])
        for some in np.array_split(order, max(1, len(order) // CHUNK))
    ]
    count_by_bucket(parts, num_items, folder / "counts")
    counts = np.zeros((num_buckets, num_items))
    for path in sorted(folder.glob("counts*.npy")):
        counts[int(path.stem.split("-")[1])] = np.load(path)
    everybody = counts[UNKNOWN_BUCKET] / max(counts[UNKNOWN_BUCKET].sum(), 1e-9)
    share = (counts + SHRINK * everybody) / (counts.sum(1, keepdims=True) + SHRINK)
    share[UNKNOWN_BUCKET] = everybody
    best = np.argsort(-share, axis=1, kind="stable")[:, : min(MAX_K, num_items)]
    score = np.take_along_axis(share, best, axis=1)
    save(folder, cohort_items=best.astype(np.int32), cohort_scores=score.astype(np.float32))
    return {"buckets": num_buckets, "length": best.shape[1], "says": f"{num_buckets} lists of {best.shape[1]}"}


def count_by_bucket(parts: list[Part], num_items: int, prefix: Path) -> None:
    """The pipeline; writes ``PREFIX-BUCKET.npy`` each."""
    with pipeline() as start:
        _ = (
            start
            | "parts" >> beam.Create(parts, reshuffle=False)
            | "count" >> beam.ParDo(CountItems(num_items))
            | "sum" >> beam.CombinePerKey(_sum)
            | "write" >> beam.MapTuple(lambda bucket, sums: np.save(f"{prefix}-{bucket}.npy", sums))
        )
