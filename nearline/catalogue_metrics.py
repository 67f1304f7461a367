"""What the catalogue follower counts."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nearline.metrics import percentiles, serve_metrics
from schemas.window import DeadLetter

_SECONDS = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 300, 600)


class CatalogueTally:
    """Counts of one follower, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._records = Counter("beforehand_catalogue_records", "Records read", registry=self.registry)
        self._letters = Counter(
            "beforehand_catalogue_dead_letters", "Records refused, by reason", ["reason"], registry=self.registry
        )
        self._releases = Counter("beforehand_catalogue_releases", "Releases that took over", registry=self.registry)
        self._items = Gauge(
            "beforehand_catalogue_items", "Items of the release, by state", ["state"], registry=self.registry
        )
        self._served = Histogram(
            "beforehand_catalogue_change_to_served_seconds",
            "From the broker's time stamp of a change to the release that holds it being current",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._counts = {"records": 0, "dead_letters": 0, "releases": 0, "changes": 0}
        self._took_s: list[float] = []

    def serve(self, port: int, host: str) -> None:
        """Expose the metrics at http://HOST:PORT/metrics. Raises ``StoreError`` when it can't."""
        serve_metrics(self.registry, port, host)

    def took(self, records: int, letters: Sequence[DeadLetter]) -> None:
        """So many records are done with, and these were refused."""
        self._records.inc(records)
        self._counts["records"] += records
        self._counts["dead_letters"] += len(letters)
        for one in letters:
            self._letters.labels(one.reason.partition(":")[0]).inc()

    def inserted(self, result: dict[str, Any]) -> None:
        """What the insertion said."""
        self._releases.inc(result["promoted"])
        self._counts["releases"] += result["promoted"]
        for state, name in (("live", "items"), ("withdrawn", "withdrawn")):
            self._items.labels(state).set(result[name])

    def served(self, timestamps_ms: Iterable[int]) -> None:
        """Changes that came at these times are in the release that serves now."""
        now = time.time()
        for at in timestamps_ms:
            took_s = max(0.0, now - at / 1000)
            self._served.observe(took_s)
            self._took_s.append(took_s)
            self._counts["changes"] += 1
        del self._took_s[:-100_000]

    def summary(self) -> dict[str, Any]:
        """The counts, and seconds from change to served (the last 100,000)."""
        return {**self._counts, "change_to_served_s": percentiles(self._took_s)}
