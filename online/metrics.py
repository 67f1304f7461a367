"""Prometheus metrics of one process. Labels are closed sets; no user or item is ever a label."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from online.deadline import Deadline
from online.tally import Histograms
from schemas.api import RecallResponse
from schemas.names import Reason, Rung, State

Judged = tuple[tuple[str, State, Reason], ...]
Skips = tuple[tuple[str, Reason], ...]
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Labelled:
    """A metric's children by their labels; prometheus_client's own look-up costs more than the counting."""

    def __init__(self, metric: Counter) -> None:
        self._metric = metric
        self._children: dict[tuple[str, ...], Counter] = {}

    def of(self, *labels: str) -> Counter:
        """The child with these labels."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._metric.labels(*labels)
        return child


class Metrics:
    """Made once per process; ``answered`` is on the hot path: it counts each kind of answer as a whole.

    The counters of ``registry`` are brought up to date when it is read.
    """

    def __init__(self) -> None:
        to = self._registry = CollectorRegistry()
        answers = Counter("beforehand_answers", "Answers by rung and release.", ["rung", "release"], registry=to)
        assets = Counter("beforehand_assets", "Assets by state and reason.", ["asset", "state", "reason"], registry=to)
        skipped = Counter("beforehand_skipped", "Rungs that did not answer.", ["rung", "reason"], registry=to)
        saved = Counter("beforehand_saved_seconds", "Work done beforehand, by asset.", ["asset"], registry=to)
        refused = Counter("beforehand_refused", "Requests refused, by HTTP status.", ["status"], registry=to)
        cache = Counter("beforehand_cache", "Look-ups by where they were answered.", ["by"], registry=to)
        self._answers, self._assets = Labelled(answers), Labelled(assets)
        self._skipped, self._saved = Labelled(skipped), Labelled(saved)
        self._refused, self._cache = Labelled(refused), Labelled(cache)
        self._stage = Histograms("beforehand_stage_seconds", "Time by stage.", "stage", to)
        self._total = Histograms("beforehand_answer_seconds", "From entry to answer.", "", to).of()
        self._late = Counter("beforehand_late", "Answers later than budget and slack.", registry=to)
        late = Counter(
            "beforehand_late_by_release", "The same, by the release that answered.", ["release"], registry=to
        )
        self._late_by = Labelled(late)
        self._wrong_key = Counter("beforehand_wrong_key", "Values of another user than asked; refused.", registry=to)
        self._ahead = Counter("beforehand_ahead", "Values that claim to be from the future.", registry=to)
        self.queue = Gauge("beforehand_decode_in_flight", "Decodes running or waiting.", registry=to)
        self.turn = Gauge("beforehand_turn_seconds", "What a turn of the event loop takes under load.", registry=to)
        self.cache_bytes = Gauge("beforehand_cache_bytes", "Bytes held by the cache.", registry=to)
        about = "Loads of a release that failed since the start."
        self.load_failures = Gauge("beforehand_release_load_failures", about, registry=to)
        about = "1 for each release that is loaded: current, previous or canary."
        self._role = Gauge("beforehand_release_role", about, ["release", "role"], registry=to)
        self.circuit_open = Gauge("beforehand_circuit_open", "1 while Redis is left alone.", registry=to)
        self._pending: dict[tuple[Rung, str, Judged, Skips], int] = {}
        self._looked_up: dict[str, int] = {}

    @property
    def registry(self) -> CollectorRegistry:
        """Everything counted so far."""
        pending, self._pending = self._pending, {}
        for (rung, release, assets, skipped), count in pending.items():
            self._answers.of(rung, release).inc(count)
            for name, state, reason in assets:
                self._assets.of(name, state, reason).inc(count)
                if reason is Reason.WRONG_KEY:
                    self._wrong_key.inc(count)
            for name, reason in skipped:
                self._skipped.of(name, reason).inc(count)
        looked_up, self._looked_up = self._looked_up, {}
        for by, count in looked_up.items():
            self._cache.of(by).inc(count)
        return self._registry

    def answered(self, response: RecallResponse, deadline: Deadline, slack_s: float) -> None:
        """Count one answer."""
        assets = tuple([(name, report.state, report.reason) for name, report in response.assets.items()])
        kind = (response.rung, response.release, assets, tuple(response.skipped.items()))
        self._pending[kind] = self._pending.get(kind, 0) + 1
        total_s = response.ledger.total_ms / 1000
        self._total.observe(total_s)
        if total_s > deadline.budget_s + slack_s:
            self._late.inc()
            self._late_by.of(response.release).inc()
        for stage, seconds in deadline.stages_s.items():
            self._stage.of(stage).observe(seconds)
        for name, milliseconds in response.ledger.saved_ms.items():
            self._saved.of(name).inc(milliseconds / 1000)

    def ahead(self) -> None:
        """A stored value is newer than now: its age counts as zero."""
        self._ahead.inc()

    def looked_up(self, by: str) -> None:
        """A look-up was answered by ``cache`` or ``redis``, or not at all (``none``)."""
        self._looked_up[by] = self._looked_up.get(by, 0) + 1

    def refused(self, status: int) -> None:
        """A request was refused."""
        self._refused.of(str(status)).inc()

    def serving(self, roles: Mapping[str, str]) -> None:
        """What each loaded release is, by id."""
        self._role.clear()
        for release, role in roles.items():
            self._role.labels(release, role).set(1)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)
