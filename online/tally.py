"""Counting on the hot path: plain numbers, made into Prometheus metrics when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

BUCKETS_S = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 1.0)


class Bins:
    """One histogram: counts by bucket, the last of them above every bound, and the sum."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one; a bound belongs to its bucket."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds

    def cumulated(self) -> list[tuple[str, float]]:
        """As Prometheus wants it: each bucket holds those below it."""
        total, buckets = 0, list[tuple[str, float]]()
        for bound, count in zip([*map(str, BUCKETS_S), "+Inf"], self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets


class Histograms(Collector):
    """Histograms that differ by one label; with no label's name there is one, by the value ``""``."""

    def __init__(self, name: str, about: str, label: str, registry: CollectorRegistry) -> None:
        self._name, self._about, self._label = name, about, label
        self._bins: dict[str, Bins] = {}
        registry.register(self)

    def of(self, value: str = "") -> Bins:
        """The one with this label."""
        bins = self._bins.get(value)
        if bins is None:
            bins = self._bins[value] = Bins()
        return bins

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """For the registry."""
        family = HistogramMetricFamily(self._name, self._about, labels=[self._label] if self._label else [])
        for value, bins in list(self._bins.items()):
            family.add_metric([value] if self._label else [], buckets=bins.cumulated(), sum_value=bins.sum_s)
        yield family
