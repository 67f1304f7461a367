"""Stage ``lists``: the best items of each profile bucket, and of everybody. Beam pipelines over events and cohorts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import numpy as np
from numpy.typing import NDArray

from offline.build.catalogue import Data, read_data, read_index, save
from offline.build.cohort_decoder import DecoderFiles, decode_cohorts
from offline.build.pipelines import pipeline
from offline.build.stage import Build, Result
from offline.histories import Case
from offline.metrics import quality
from schemas.api import MAX_K
from schemas.release import UNKNOWN_BUCKET

CHUNK = 100_000
HALF_LIFE_MS = 30 * 86_400_000
SHRINK = 500.0
"""Events' worth of everybody's taste in each bucket: a bucket of few users does not follow one of them."""
COUNTS, GENERATOR, BOTH = "counts", "generator", "both"
FUSION = 60
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

    An event weighs half as much for every 30 days of age; by counts, the score is the share among the bucket's events.
    The other rows are by counts, by the generator, or both, whichever recalls most on validation; where the generator
    has a say the score is the sum of 1 / (60 + rank) over the lists that hold the item (reciprocal rank fusion).
    """
    index = read_index(build)
    data = read_data(build, index.number)
    share = _shares(data, len(index.vectors), folder)
    length = min(MAX_K, len(index.vectors))
    counted = _ranked(share, length)
    export = build.folder("export")
    arrays = {name: np.load(export / "arrays" / f"{name}.npy") for name in ("intent_defaults", "prompt_defaults")}
    files = DecoderFiles.of(export, index.codes.shape[1], build.result("evaluate")["weights"])
    generated = decode_cohorts(files, arrays, folder)
    ways = {
        COUNTS: counted,
        GENERATOR: fused([generated], counted, len(index.vectors), length),
        BOTH: fused([generated, list(counted.items)], counted, len(index.vectors), length),
    }
    found = {way: _recall(lists.items, data.validation) for way, lists in ways.items()}
    best = max(found, key=lambda way: (found[way], way == COUNTS))
    lists = ways[best]
    items, scores = lists.items, lists.scores
    items[UNKNOWN_BUCKET], scores[UNKNOWN_BUCKET] = counted.items[UNKNOWN_BUCKET], counted.scores[UNKNOWN_BUCKET]
    save(folder, cohort_items=items.astype(np.int32), cohort_scores=scores.astype(np.float32))
    says = ", ".join(f"{way} {value:.4f}" for way, value in found.items())
    return {
        "buckets": len(items),
        "length": length,
        "way": best,
        "validation": {way: round(value, 5) for way, value in found.items()},
        "says": f"{len(items)} lists of {length} by {best} (Recall@10 + @50: {says})",
    }


@dataclass(frozen=True)
class Ranked:
    """Items [buckets, J], best first, and their scores."""

    items: NDArray[np.int64]
    scores: Floats


def _shares(data: Data, num_items: int, folder: Path) -> Floats:
    """[buckets, N]: the share of each item among a bucket's events, drawn towards everybody's."""
    bucket = np.array([data.buckets.of(user) for user in data.train.users], np.int64)[data.train.user]
    weight = 0.5 ** ((data.train.at.max() - data.train.at) / HALF_LIFE_MS)
    order = np.argsort(bucket, kind="stable")
    parts = [
        (bucket[some], data.train.item[some], weight[some])
        for some in np.array_split(order, max(1, len(order) // CHUNK))
    ]
    count_by_bucket(parts, num_items, folder / "counts")
    counts = np.zeros((len(data.buckets.names), num_items))
    for path in sorted(folder.glob("counts*.npy")):
        counts[int(path.stem.split("-")[1])] = np.load(path)
    everybody = counts[UNKNOWN_BUCKET] / max(counts[UNKNOWN_BUCKET].sum(), 1e-9)
    share = (counts + SHRINK * everybody) / (counts.sum(1, keepdims=True) + SHRINK)
    share[UNKNOWN_BUCKET] = everybody
    return share


def _ranked(score: Floats, length: int) -> Ranked:
    items = np.argsort(-score, axis=1, kind="stable")[:, :length]
    return Ranked(items, np.take_along_axis(score, items, axis=1))


def fused(given: Sequence[Sequence[NDArray[np.int64]]], rest: Ranked, num_items: int, length: int) -> Ranked:
    """Reciprocal rank fusion (Cormack et al. 2009) of lists by bucket; ``rest`` fills up what they leave empty."""
    score = np.zeros((len(rest.items), num_items))
    for lists in given:
        for bucket, items in enumerate(lists):
            score[bucket, items] += 1 / (FUSION + np.arange(len(items)))
    filling = 1 / (FUSION + MAX_K + np.arange(rest.items.shape[1])) / 1e3
    empty = np.take_along_axis(score, rest.items, axis=1) == 0
    np.put_along_axis(score, rest.items, np.where(empty, filling, np.take_along_axis(score, rest.items, 1)), axis=1)
    return _ranked(score, length)


def _recall(lists: NDArray[np.int64], cases: Sequence[Case]) -> float:
    """Of the users whose bucket is known; 0 without any."""
    known = [case for case in cases if case.bucket != UNKNOWN_BUCKET]
    found = quality(lists[[case.bucket for case in known]], [case.target for case in known]) if known else {}
    return found.get("recall_at_10", 0.0) + found.get("recall_at_50", 0.0)


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
