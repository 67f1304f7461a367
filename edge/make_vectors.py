"""Makes ``vectors/prompt.json``: local events, clock and bucket, and the numbers that every SDK must get from them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edge.bundle import Bundle, load_bundle
from edge.encoder import OnnxEncoder
from edge.features import features
from edge.locate import find_release
from schemas.event import Event
from schemas.names import Kind
from schemas.release import load_public_key

VECTORS = Path(__file__).parent / "vectors" / "prompt.json"
TOLERANCE = 1e-5
NOW_MS = 1_772_359_500_123  # a Sunday, 10:05 UTC
USER = "vector-user"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One example. Arrays are those of ``schemas.graphs`` without the batch axis."""

    name: str
    bucket: int
    now_ms: int
    events: list[Event]  # in order of arrival
    used: list[str]  # event ids that reach the graph, oldest first
    num_unknown: int
    graph_bucket: int
    clock: list[float]
    codes: list[list[int]]
    kind: list[int]
    age: list[float]
    prompt: list[list[float]]  # [P, d]


class Vectors(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    release: str  # they hold for this release only
    tolerance: float  # of every float, absolute
    cases: list[Case]
    v: int = 1


def inputs(bundle: Bundle) -> list[tuple[str, int, int, list[Event]]]:
    """Name, bucket, wall time and events of every case."""
    most = bundle.model.local_events
    items = list(bundle.numbers)
    last = bundle.model.num_buckets - 1

    def event(number: int, age_ms: int, item_id: str = "", event_id: str = "") -> Event:
        return Event(
            event_id=event_id or f"e{number:02}",
            user_id=USER,
            item_id=item_id or items[(7 * number) % len(items)],
            kind=list(Kind)[number % len(Kind)],
            at=NOW_MS - age_ms,
        )

    def some(count: int) -> list[Event]:
        return [event(number, 1_500 * (count - number)) for number in range(count)]

    unknown = event(90, 500, item_id="no such item")
    return [
        ("none", 0, NOW_MS, []),
        ("none, last bucket", last, NOW_MS, []),
        ("one", 0, NOW_MS, some(1)),
        ("one, last bucket", last, NOW_MS, some(1)),
        ("most", last, NOW_MS, some(most)),
        ("one more than most", last, NOW_MS, some(most + 1)),
        ("bucket that the release lacks", last + 1, NOW_MS, some(2)),
        ("unknown item only", last, NOW_MS, [unknown]),
        ("unknown item pushes none out", 0, NOW_MS, [*some(most), unknown]),
        ("out of order, equal times", 0, NOW_MS, [event(3, 100), event(2, 900), event(1, 100)]),
        ("an id twice: the first wins", 0, NOW_MS, [event(1, 800), event(2, 400, event_id="e01"), event(3, 90)]),
        ("later than the clock", 0, NOW_MS, [event(1, 60_000), event(2, -60_000)]),
        ("a day and a year old", 0, NOW_MS, [event(1, 31_536_000_000), event(2, 86_400_000)]),
        ("midnight of a Monday", 0, 1_772_409_600_000, some(3)),
    ]


def make(bundle: Bundle) -> Vectors:
    """The vectors of a release."""
    encoder = OnnxEncoder(bundle.graph)
    cases = []
    for name, bucket, now_ms, events in inputs(bundle):
        known = bundle.known_bucket(bucket)
        made = features(events, bundle.codes, bundle.model, known, now_ms)
        feeds = made.feeds
        prompt = encoder.run(feeds, encoder.switch())[0] if made.events else bundle.prompt_defaults[known]
        cases.append(
            Case(
                name=name,
                bucket=bucket,
                now_ms=now_ms,
                events=events,
                used=[event.event_id for event in made.events],
                num_unknown=made.num_unknown,
                graph_bucket=known,
                clock=feeds["clock"][0].tolist(),
                codes=feeds["codes"][0].tolist(),
                kind=feeds["kind"][0].tolist(),
                age=feeds["age"][0].tolist(),
                prompt=np.asarray(prompt).tolist(),
            )
        )
    return Vectors(release=bundle.release, tolerance=TOLERANCE, cases=cases)


def read(path: Path = VECTORS) -> Vectors:
    """The vectors in ``path``."""
    return msgspec.json.decode(path.read_bytes(), type=Vectors)


def vectors(args: argparse.Namespace) -> dict[str, Any]:
    """The verb."""
    made = make(load_bundle(find_release(args.release), load_public_key(args.key)))
    args.out.write_bytes(_one_case_a_line(made))
    return {"release": made.release, "cases": len(made.cases), "out": str(args.out)}


def _one_case_a_line(made: Vectors) -> bytes:
    cases = b",\n".join(msgspec.json.encode(case) for case in made.cases)
    head = msgspec.json.encode(msgspec.structs.replace(made, cases=[]))
    return head.replace(b'"cases":[]', b'"cases":[\n' + cases + b"\n]") + b"\n"
