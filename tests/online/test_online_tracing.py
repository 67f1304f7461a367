"""Spans of a request: a caller's parent, every stage, why the answer came out so, and nobody's name."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from online_values import NOW_MS, make_state
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from test_online_service import Shelf

from online.app import App
from online.deadline import Deadline, Trail
from online.service import Recall
from online.tracing import Traces, open_traces

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
def recall(plan, releases, release) -> Iterator[Recall]:
    made = Recall(plan, Shelf(make_state(release)), releases, now_ms=lambda: NOW_MS)
    yield made
    made.decoder.close()


def spans_of(recall, path: str, body: object, headers: dict[str, str], sampler=None) -> list[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def run() -> None:
        transport = httpx.ASGITransport(app=App(recall, 5.0, traces=Traces(provider)))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            (await client.post(path, json=body, headers=headers)).raise_for_status()

    asyncio.run(run())
    return list(exporter.get_finished_spans())


def test_a_request_is_a_child_of_its_caller_and_has_every_stage(recall, release):
    spans = spans_of(recall, "/v1/recall", {"user_id": "u1", "k": 5}, SAMPLED)
    (root,) = [span for span in spans if span.name == "recall"]
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT
    stages = [span for span in spans if span is not root]
    assert [span.name for span in stages] == ["parse", "door", "store", "queue", "decode", "build", "encode"]
    assert all(span.parent.span_id == root.context.span_id for span in stages)
    edges = [root.start_time, *(edge for span in stages for edge in (span.start_time, span.end_time)), root.end_time]
    assert edges == sorted(edges)
    said = dict(root.attributes)
    assert said["beforehand.rung"] == "generate"
    assert said["beforehand.release"] == release.id
    assert said["beforehand.prompt_embedding.reason"] == "not_sent"
    facts = {span.name: dict(span.attributes) for span in stages}
    assert facts["door"] == {"beforehand.admitted": True}
    assert facts["store"] == {"beforehand.looked_up": "redis"}
    assert facts["decode"] == {"beforehand.batch_size": 1}


def test_why_a_better_rung_did_not_answer(recall, release):
    category = release.catalogue.categories[0]
    body = {"user_id": "u1", "allow": [f"{category}-that-is-not"]}
    (root,) = [span for span in spans_of(recall, "/v1/recall", body, {}) if span.name == "recall"]
    assert root.parent is None
    assert root.attributes["beforehand.rung"] == "none"
    assert root.attributes["beforehand.skipped.generate"] == "nothing_allowed"


def test_no_user_and_no_item_is_named(recall, release):
    body = {"user_id": "u1", "exclude": [release.catalogue.item_ids[0]], "context": {"bucket": "secret-bucket"}}
    told = json.dumps([json.loads(span.to_json()) for span in spans_of(recall, "/v1/recall", body, SAMPLED)])
    for word in ('"u1"', "secret-bucket", *(f'"{item}"' for item in release.catalogue.item_ids)):
        assert word not in told


def test_each_request_of_a_batch_has_its_own_span(recall):
    spans = spans_of(recall, "/v1/recall:batch", [{"user_id": "u1"}, {"user_id": "u2"}], SAMPLED)
    roots = [span for span in spans if span.name == "recall"]
    assert [f"{root.parent.span_id:016x}" for root in roots] == [PARENT, PARENT]
    for root in roots:
        own = [span.name for span in spans if span.parent.span_id == root.context.span_id]
        assert own[0] == "parse"
        assert {"store", "decode", "build"} <= set(own)


@pytest.mark.parametrize(("flag", "num_roots"), [("00", 0), ("01", 1)])
def test_the_callers_choice_to_sample_is_kept(recall, flag, num_roots):
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-{flag}"}
    sampler = ParentBased(TraceIdRatioBased(0.5))
    spans = spans_of(recall, "/v1/recall", {"user_id": "u1"}, headers, sampler)
    assert [span.name for span in spans].count("recall") == num_roots
    assert bool(spans) == bool(num_roots)


@pytest.mark.parametrize("parent", ["", "nonsense", "00-" + "0" * 32 + "-" + PARENT + "-01", "ÿ" * 3])
def test_a_parent_that_is_none_begins_a_trace(recall, parent):
    headers = {"traceparent": parent.encode("latin-1")} if parent else {}
    (root,) = [span for span in spans_of(recall, "/v1/recall", {"user_id": "u1"}, headers) if span.name == "recall"]
    assert root.parent is None


def test_the_ledger_is_the_same_with_a_trail():
    now = iter(float(n) for n in range(100))
    stages, kept = [], Trail()
    for trail in (None, kept):
        deadline = Deadline(100.0, clock=lambda: next(now))
        deadline.trail = trail
        deadline.mark("parse")
        deadline.mark("decode")
        deadline.split("decode", "queue", 0.25)
        stages.append(deadline.stages_s)
    assert stages[0] == stages[1] == {"parse": 1.0, "queue": 0.25, "decode": 0.75}
    assert [(name, ended - begun) for name, begun, ended in kept.laps] == [
        ("parse", 1.0),
        ("queue", 0.25),
        ("decode", 0.75),
    ]


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_off_unless_an_endpoint_is_named(environment):
    assert open_traces(environment) is None


def test_an_endpoint_turns_it_on(monkeypatch):
    environment = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    traces = open_traces(environment)
    assert traces is not None
    traces.close()


def test_nothing_of_it_is_loaded_while_it_is_off():
    code = "import sys, online.server as s; s.open_traces({}); print(any('opentelemetry' in m for m in sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
