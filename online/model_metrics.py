"""What the model's answers look like: diversity, novelty, coverage, overlap, drift. From a share of the answers, in a
thread of its own: a request only leaves its list behind."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from online.graph import ORT_ERRORS, Array
from online.release import Release
from schemas.api import Item
from schemas.names import Rung
from schemas.release import UNKNOWN_BUCKET

SAMPLE_EVERY = 20
MAX_WAITING = 256
EVERY_S, BETWEEN_S = 1.0, 0.01
"""The thread's pauses: while nothing waits, and from one answer to the next. The event loop and the decoder wait for
the interpreter while it looks at one, so not all that came in a second at a stretch."""
LAST = 1_000
"""Sampled answers of a release that coverage and drift look back on."""
FIRST = 10
"""Of a list's items whose scores count for drift: what a page shows."""
QUANTILES = (0.1, 0.5, 0.9)
MAX_BUCKETS = 16
"""Whose default rows say what this release's scores are like."""
PER_RUNG = {
    "diversity": "Of an answer: the share of its pairs of items that differ in the first code.",
    "novelty": "Of an answer: the share of its items outside the equally long list for everybody.",
    "beam_overlap": "Of a generated answer: the share of its items in the equally long list of the profile bucket.",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer that is looked at."""

    release: Release
    rung: Rung
    bucket: int
    items: Sequence[Item]


@dataclass(slots=True)
class Seen:
    """What is known of one release's answers."""

    last_shown: Array  # int64 [N]: the number of the last answer that held the item
    usual_score: tuple[float, float]  # mean and deviation of the answers to the default rows
    num_answers: int = 0
    scores: deque[float] = field(default_factory=lambda: deque[float](maxlen=LAST))

    @property
    def coverage(self) -> float:
        """Share of the catalogue in the last answers."""
        return float((self.last_shown > self.num_answers - LAST).mean())

    @property
    def quantiles(self) -> dict[float, float]:
        """Of the answers' scores; none before the first answer."""
        scores = list(self.scores)  # another thread adds to it
        return dict(zip(QUANTILES, np.quantile(scores, QUANTILES).tolist(), strict=True)) if scores else {}

    @property
    def drift(self) -> float | None:
        """How far the mean score is from the usual one, in deviations; None before the first answer."""
        mean, deviation = self.usual_score
        return (sum(self.scores) / len(self.scores) - mean) / max(deviation, 1e-9) if self.scores else None


class ModelMetrics(Collector):
    """``offer`` belongs to the event loop, everything else to one thread; a scrape reads sums."""

    def __init__(self, to: CollectorRegistry, every: int = SAMPLE_EVERY) -> None:
        self._every = every
        self._offered = 0
        self._waiting = deque[Sample](maxlen=MAX_WAITING)
        self._sums: dict[tuple[str, str, str], tuple[int, float]] = {}
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="model-metrics", daemon=True)
        to.register(self)

    def offer(self, release: Release, rung: Rung, bucket: int, items: Sequence[Item]) -> None:
        """An answer is made; one in ``every`` is looked at later. The oldest waiting is given up for the newest."""
        self._offered += 1
        if self._offered % self._every == 0 and items:
            self._waiting.append(Sample(release, rung, bucket, items))

    def start(self) -> None:
        """Begin to look at what comes."""
        self._thread.start()

    def stop(self) -> None:
        """What still waits is not looked at."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def look(self) -> bool:
        """Look at the oldest that waits; False when none does."""
        if not self._waiting:
            return False
        self._book(self._waiting.popleft())
        return True

    def _follow(self) -> None:
        while not self._stop.wait(BETWEEN_S if self._waiting else EVERY_S):
            self.look()

    def _book(self, sample: Sample) -> None:
        release, count = sample.release, len(sample.items)
        numbers = np.array([release.item_numbers[item.item_id] for item in sample.items], np.int64)
        self._add(sample, "diversity", diversity([item.sid[0] for item in sample.items]))
        self._add(sample, "novelty", 1.0 - shared(numbers, release.cohorts.row(UNKNOWN_BUCKET)[0][:count]))
        seen = self._of(release)
        seen.num_answers += 1
        seen.last_shown[numbers] = seen.num_answers
        if sample.rung is Rung.GENERATE:
            self._add(sample, "beam_overlap", shared(numbers, release.cohorts.row(sample.bucket)[0][:count]))
            scores = [item.score for item in sample.items[:FIRST]]
            seen.scores.append(sum(scores) / len(scores))

    def _add(self, sample: Sample, what: str, value: float) -> None:
        key = (what, str(sample.rung), sample.release.id)
        count, total = self._sums.get(key, (0, 0.0))
        self._sums[key] = (count + 1, total + value)

    def _of(self, release: Release) -> Seen:
        seen = self._seen.get(release.id)
        if seen is None:
            never = np.full(release.model.num_items, -LAST, np.int64)
            seen = self._seen[release.id] = Seen(never, usual_score(release))
            if len(self._seen) > 3:  # never are more loaded
                self._seen.popitem(last=False)
        return seen

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        for what, about in PER_RUNG.items():
            family = SummaryMetricFamily(f"beforehand_model_{what}", about, labels=["rung", "release"])
            for (name, rung, release), (count, total) in list(self._sums.items()):
                if name == what:
                    family.add_metric([rung, release], count_value=count, sum_value=total)
            yield family
        about = f"Share of the catalogue in the last {LAST} sampled answers."
        coverage = GaugeMetricFamily("beforehand_model_coverage", about, labels=["release"])
        about = "Mean score of generated answers against the same decoder's on the default rows, in deviations."
        drift = GaugeMetricFamily("beforehand_model_score_drift", about, labels=["release"])
        about = (
            f"Quantiles of the mean score of the first {FIRST} items, over the last {LAST} sampled generated answers."
        )
        score = GaugeMetricFamily("beforehand_model_score", about, labels=["release", "quantile"])
        for release, seen in list(self._seen.items()):
            for quantile, value in seen.quantiles.items():
                score.add_metric([release, str(quantile)], value)
            coverage.add_metric([release], seen.coverage)
            if (off := seen.drift) is not None:
                drift.add_metric([release], off)
        yield coverage
        yield drift
        yield score


def diversity(codes: Sequence[int]) -> float:
    """Share of the pairs whose codes differ; 1 for a single item."""
    count = len(codes)
    if count < 2:
        return 1.0
    same = sum(n * (n - 1) for n in Counter(codes).values())
    return 1.0 - same / (count * (count - 1))


def shared(numbers: Array, listed: Array) -> float:
    """Share of ``numbers`` that ``listed`` holds."""
    return float(np.isin(numbers, listed).mean())


def usual_score(release: Release) -> tuple[float, float]:
    """Mean and deviation of the first scores that the decoder gives for the default rows of the profile buckets.

    Zero and one when the decoder does not run: what fails is told elsewhere.
    """
    model, arrays = release.model, release.arrays
    near = (np.full((1, model.neighbours), -1, np.int64), np.zeros((1, model.neighbours), np.float32))
    none = np.full((1, 1), -1, np.int64)
    firsts: list[Array] = []
    for bucket in range(min(model.num_buckets, MAX_BUCKETS)):
        rows = (arrays["intent_defaults"][[bucket]], arrays["prompt_defaults"][[bucket]])
        try:
            items, scores = release.decoder.run(release.decoder_feed(*rows, near, (none, none)))[:2]
        except ORT_ERRORS:
            return 0.0, 1.0
        firsts.append(scores[0][items[0] >= 0][:FIRST])
    found = np.concatenate(firsts)
    return float(found.mean()), float(found.std())
