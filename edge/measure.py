"""``edge bench``: cold start and time per embedding of the Python runtime, the yardstick of the other SDKs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edge import make_vectors
from edge.envelope import read_envelope
from edge.layout import MANIFEST, BundleManifest
from edge.make_bundle import first_bytes
from edge.make_vectors import Case
from edge.read_bundle import read_bundle
from edge.runtime import Clock, Edge
from schemas.api import PromptEmbedding
from schemas.errors import BeforehandError, DataError
from schemas.release import load_public_key

PATIENT_MS = 60_000.0


def bench(args: argparse.Namespace) -> dict[str, Any]:
    """The verb. Times are of the whole call: from tracked events to rows, the wake-up of the worker thread included."""
    if args.runs < 1:
        raise DataError("not a number of runs", where="--runs", value=args.runs, mend="Give 1 or more.")
    keys = [load_public_key(args.key)]
    vectors = make_vectors.read(args.vectors)
    folder: Path = args.vectors / "bundle" / vectors.bundle
    cases = [case for case in vectors.cases if case.used]
    begun = time.perf_counter()
    now = [0]
    edge = Edge(read_bundle(folder, keys), consent=True, clock=Clock(now_ms=lambda: now[0]))
    _, difference = _replay(edge, cases[0], now)
    cold_ms = (time.perf_counter() - begun) * 1000
    took: list[float] = []
    for number in range(args.runs):
        took_ms, wrong = _replay(edge, cases[number % len(cases)], now)
        took.append(took_ms)
        difference = max(difference, wrong)
    edge.close()
    p50, p99 = np.percentile(took, [50, 99])
    manifest = read_envelope(folder / MANIFEST, keys, BundleManifest)
    return {
        "runtime": "python",
        "bundle": manifest.id,
        "graph": manifest.content.graph,
        "encode_ms": {"p50": round(float(p50), 3), "p99": round(float(p99), 3)},
        "cold_start_ms": round(cold_ms, 1),
        "max_abs_difference": difference,
        "bundle_bytes": first_bytes({name: entry.num_bytes for name, entry in manifest.content.files.items()}),
        "measured": msgspec.to_builtins(manifest.measured),
    }


def _replay(edge: Edge, case: Case, now: list[int]) -> tuple[float, float]:
    """Milliseconds of one prompt, and its largest difference from the vector."""
    now[0] = case.now_ms
    edge.forget()
    edge.set_user(make_vectors.USER, case.bucket)
    for event in case.events:
        edge.track(event)
    begun = time.perf_counter()
    made = edge.prompt(PATIENT_MS)
    took_ms = (time.perf_counter() - begun) * 1000
    if not isinstance(made, PromptEmbedding):
        raise BeforehandError("no embedding", where=case.name, value=made.value, mend="Make the vectors again.")
    rows = np.frombuffer(made.rows, "<f4").reshape(made.num_rows, -1)
    return took_ms, float(np.abs(rows - np.array(case.prompt)).max())
