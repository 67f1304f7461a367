"""What the worker counts: Prometheus metrics for operators, and the summary of one run."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from schemas.canary import Split
from schemas.errors import StoreError

SAMPLES = 100_000
_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60)
COUNTS = {
    "records": "Records read from the windows topic",
    "states": "Intent states written",
    "stale": "States that the store dropped because it had a newer one",
    "candidates": "Candidate lists written",
    "dead_letters": "Records that became a dead letter",
    "rows": "Rows that the encoder computed",
    "rows_whole": "Rows that encoding every window whole would have taken",
    "unknown_items": "Events left out: the release has no such item",
    "forgotten": "Users deleted by a tombstone",
    "lost_partitions": "Partitions read again because Redis had lost their states",
    "reencoded": "Users encoded again: other releases, or states that were lost",
}


class Tally:
    """Counts of one worker. Own registry, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"beforehand_worker_{name}", about, registry=self.registry) for name, about in COUNTS.items()
        }
        self._counts = dict.fromkeys(self._counters, 0)
        self._batch = Histogram(
            "beforehand_worker_batch_size",
            "Windows encoded together after keeping the newest per user",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
            registry=self.registry,
        )
        self._visible = Histogram(
            "beforehand_worker_event_to_visible_seconds",
            "From the broker's time stamp of the newest event to the write of the state",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.lag = Gauge("beforehand_worker_lag", "Records behind the end of the topic", registry=self.registry)
        self.left = Gauge(
            "beforehand_worker_reencode_left", "Records that are still to be encoded again", registry=self.registry
        )
        self.held = Gauge("beforehand_worker_held", "Users whose Redis node is out of reach", registry=self.registry)
        self._release = Gauge(
            "beforehand_worker_release", "Share of the users, by release in use", ["id"], registry=self.registry
        )
        self._freshness_ms: deque[float] = deque(maxlen=SAMPLES)
        self._begun, self._cpu = time.monotonic(), time.process_time()

    def serve(self, port: int, host: str = "127.0.0.1") -> tuple[Any, Any]:
        """Expose the metrics at http://HOST:PORT/metrics; returns the server and its thread."""
        return serve_metrics(self.registry, port, host)

    def add(self, **counts: int) -> None:
        """Add to counts by name (``records=3, states=2``)."""
        for name, count in counts.items():
            self._counts[name] += count
            self._counters[name].inc(count)

    def batch(self, size: int) -> None:
        """A batch of ``size`` windows is about to be encoded."""
        self._batch.observe(size)

    def use(self, split: Split) -> None:
        """These releases are in use from now on."""
        self._release.clear()
        self._release.labels(split.current).set(1 - split.share)
        if split.canary is not None:
            self._release.labels(split.canary).set(split.share)

    def visible(self, freshness_ms: float) -> None:
        """A state was written ``freshness_ms`` after its newest event arrived."""
        self._visible.observe(max(0.0, freshness_ms) / 1000)
        self._freshness_ms.append(freshness_ms)

    def count(self, name: str) -> int:
        """One count so far."""
        return self._counts[name]

    def summary(self) -> dict[str, Any]:
        """The counts, CPU and wall seconds since the start, and event-to-visible (the last 100,000 states)."""
        return {
            **self._counts,
            "cpu_s": round(time.process_time() - self._cpu, 3),
            "seconds": round(time.monotonic() - self._begun, 3),
            "event_to_visible_ms": percentiles(self._freshness_ms),
        }


def percentiles(values: deque[float] | list[float]) -> dict[str, float | None]:
    """``p50`` and ``p99``; None without values."""
    if not values:
        return {"p50": None, "p99": None}
    p50, p99 = np.percentile(np.asarray(values), (50, 99)).tolist()
    return {"p50": round(p50, 1), "p99": round(p99, 1)}


def serve_metrics(registry: CollectorRegistry, port: int, host: str) -> tuple[Any, Any]:
    """Expose ``registry`` at http://HOST:PORT/metrics; the server and its thread. Raises ``StoreError``: it can't."""
    try:
        return start_http_server(port, addr=host, registry=registry)
    except (OSError, OverflowError, ValueError) as error:
        raise StoreError(
            f"the metrics can't be served there: {error}",
            where="--metrics-port",
            value=f"{host}:{port}",
            mend="Name a free port, 0 to 65535, of an address of this machine.",
        ) from None
