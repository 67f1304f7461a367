"""OpenTelemetry spans of answered requests: made after the answer, from what the deadline kept.

While a request runs only its stages' times are noted; nothing here is imported or done unless an endpoint is
configured. No attribute names a user or an item.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from online.deadline import Deadline
from online.http import Scope, header
from schemas.api import RecallResponse

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SERVICE = "beforehand-online"
FLUSH_MS = 2_000
"""A collector that does not answer holds up the end of the process no longer."""
Answered = tuple[Deadline, RecallResponse]
STAGE_FACTS = {"door": ("admitted",), "store": ("looked_up",), "decode": ("batch_size",)}


def open_traces(environment: Mapping[str, str]) -> Traces | None:
    """What the standard ``OTEL_*`` variables ask for; None when they name no endpoint, or say that it is off.

    Sampler, headers, time-out, queue and resource are read from them by the SDK itself.
    """
    off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    )
    if off or not any(environment.get(name) for name in ENDPOINTS):
        return None
    # Imported here: a service without tracing neither loads nor needs them.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    named = {} if environment.get("OTEL_SERVICE_NAME") else {"service.name": SERVICE}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))  # its thread sends; a full queue drops
    return Traces(provider)


class Traces:
    """A span ``recall`` for each answer, with a child for each stage: ``parse``, ``door``, ``store``, ``queue`` (the
    line), ``decode`` (the batch), ``build``, ``encode``. The parent is the caller's, by ``traceparent``."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._provider = provider
        self._tracer = provider.get_tracer("beforehand.online")
        self._propagator = TraceContextTextMapPropagator()
        self._api = trace

    def close(self) -> None:
        """Send what waits, within ``FLUSH_MS``."""
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()

    def answered(self, scope: Scope, answers: Sequence[Answered]) -> None:
        """The requests of one call have been answered; a batch's are siblings."""
        carrier = {name: header(scope, name.encode()).decode("latin-1") for name in ("traceparent", "tracestate")}
        parent = self._propagator.extract({name: value for name, value in carrier.items() if value})
        for deadline, response in answers:
            self._tell(parent, deadline, response)

    def _tell(self, parent: Context, deadline: Deadline, response: RecallResponse) -> None:
        trail = deadline.trail
        if trail is None:
            return
        now, now_ns = deadline.now, time.time_ns()

        def at(seconds: float) -> int:
            return now_ns - round((now - seconds) * 1e9)

        kind = self._api.SpanKind.SERVER
        span = self._tracer.start_span(
            "recall", parent, kind, attributes=_said(response), start_time=at(deadline.begun)
        )
        if span.is_recording():
            inside = self._api.set_span_in_context(span, parent)
            for stage, begun, ended in trail.laps:
                facts: dict[str, AttributeValue] = {
                    f"beforehand.{name}": trail.facts[name]
                    for name in STAGE_FACTS.get(stage, ())
                    if name in trail.facts
                }
                self._tracer.start_span(stage, inside, attributes=facts, start_time=at(begun)).end(at(ended))
        span.end(now_ns)


def _said(response: RecallResponse) -> dict[str, AttributeValue]:
    """Rung, release and every reason; items and the user are left out."""
    said: dict[str, AttributeValue] = {
        "beforehand.rung": response.rung,
        "beforehand.release": response.release,
        "beforehand.num_items": len(response.items),
        "beforehand.budget_ms": response.ledger.budget_ms,
    }
    said |= {f"beforehand.skipped.{rung}": str(reason) for rung, reason in response.skipped.items()}
    for name, report in response.assets.items():
        said[f"beforehand.{name}.state"], said[f"beforehand.{name}.reason"] = report.state, report.reason
    return said
