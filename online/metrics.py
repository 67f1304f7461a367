"""Prometheus metrics of one process. Labels are closed sets; no user or item is ever a label."""

from __future__ import annotations

from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from online.deadline import Deadline
from schemas.api import RecallResponse
from schemas.names import Reason

BUCKETS_S = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 1.0)
Metric = TypeVar("Metric", Counter, Histogram)
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Labelled(Generic[Metric]):
    """A metric's children by their labels; prometheus_client's own look-up costs more than the counting."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._children: dict[tuple[str, ...], Metric] = {}

    def of(self, *labels: str) -> Metric:
        """The child with these labels."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._metric.labels(*labels)
        return child


class Metrics:
    """Made once per process; ``answered`` is on the hot path."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        to = self.registry
        answers = Counter("beforehand_answers", "Answers by rung and release.", ["rung", "release"], registry=to)
        stage = Histogram("beforehand_stage_seconds", "Time by stage.", ["stage"], buckets=BUCKETS_S, registry=to)
        assets = Counter("beforehand_assets", "Assets by state and reason.", ["asset", "state", "reason"], registry=to)
        skipped = Counter("beforehand_skipped", "Rungs that did not answer.", ["rung", "reason"], registry=to)
        saved = Counter("beforehand_saved_seconds", "Work done beforehand, by asset.", ["asset"], registry=to)
        refused = Counter("beforehand_refused", "Requests refused, by HTTP status.", ["status"], registry=to)
        cache = Counter("beforehand_cache", "Look-ups by where they were answered.", ["by"], registry=to)
        self._answers, self._stage, self._assets = Labelled(answers), Labelled(stage), Labelled(assets)
        self._skipped, self._saved = Labelled(skipped), Labelled(saved)
        self._refused, self._cache = Labelled(refused), Labelled(cache)
        self._total = Histogram("beforehand_answer_seconds", "From entry to answer.", buckets=BUCKETS_S, registry=to)
        self._late = Counter("beforehand_late", "Answers later than budget and slack.", registry=to)
        self._wrong_key = Counter("beforehand_wrong_key", "Values of another user than asked; refused.", registry=to)
        self._ahead = Counter("beforehand_ahead", "Values that claim to be from the future.", registry=to)
        self.queue = Gauge("beforehand_decode_in_flight", "Decodes running or waiting.", registry=to)
        self.cache_bytes = Gauge("beforehand_cache_bytes", "Bytes held by the cache.", registry=to)
        self.circuit_open = Gauge("beforehand_circuit_open", "1 while Redis is left alone.", registry=to)

    def answered(self, response: RecallResponse, deadline: Deadline, slack_s: float) -> None:
        """Count one answer."""
        self._answers.of(response.rung, response.release).inc()
        total_s = response.ledger.total_ms / 1000
        self._total.observe(total_s)
        if total_s > deadline.budget_s + slack_s:
            self._late.inc()
        for stage, seconds in deadline.stages_s.items():
            self._stage.of(stage).observe(seconds)
        for name, report in response.assets.items():
            self._assets.of(name, report.state, report.reason).inc()
            if report.reason is Reason.WRONG_KEY:
                self._wrong_key.inc()
        for rung, reason in response.skipped.items():
            self._skipped.of(rung, reason).inc()
        for name, milliseconds in response.ledger.saved_ms.items():
            self._saved.of(name).inc(milliseconds / 1000)

    def ahead(self) -> None:
        """A stored value is newer than now: its age counts as zero."""
        self._ahead.inc()

    def looked_up(self, by: str) -> None:
        """A look-up was answered by ``cache`` or ``redis``, or not at all (``none``)."""
        self._cache.of(by).inc()

    def refused(self, status: int) -> None:
        """A request was refused."""
        self._refused.of(str(status)).inc()

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)
