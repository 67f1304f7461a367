"""Makes ``vectors/``: a small bundle, and what every SDK must get from it. The same for any release, for benchmarks.

::

    bundle/         a whole tree as it is served: current.json and one bundle
    prompt.json     events, clock and bucket, and the inputs and rows that follow (``Vectors``)
    codes.json      hashes of ids, codes of items (``CodeVectors``)
    rollout.json    which device gets which offer (``RolloutCase``)
    reasons.json    the closed sets of reasons, and the keys to pin
    faults.json     changes to the tree, and what a device that has the bundle says of each (``edge.make_faults``)
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edge.bundle import Bundle
from edge.code_table import item_hash
from edge.encoder import OnnxEncoder
from edge.envelope import pinned, seal
from edge.features import features
from edge.layout import Current, Offer
from edge.locate import find_release
from edge.make_bundle import Settings, Source, make_bundle
from edge.make_faults import Fault, faults
from edge.names import BundleReason, EdgeReason
from edge.probes import NOW_MS
from edge.read_bundle import read_bundle
from edge.read_release import read_release
from edge.roll_out import write_current
from edge.rollout import choose, place
from schemas.event import Event
from schemas.names import Kind
from schemas.release import load_private_key, load_public_key

VECTORS = Path(__file__).parent / "vectors"
TOLERANCE = 1e-5
USER = "vector-user"
SEED = "vector-device"
SETTINGS = Settings(
    usable_for_s=10 * 365 * 86_400.0,
    prompt_usable_for_s=60.0,
    shard_bytes=64,  # so that the fixture's 60 items fill more shards than a device keeps in memory
    first_bytes=64 * 1024**2,
    max_difference=0.1,
)
IDS = ["a", "item-000", "no such item", "绿茶", "🧼", "é", "e\u0301", " ", "x" * 256, '"quoted"', "a/b?c#d"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One example. Arrays are those of ``schemas.graphs`` without the batch axis."""

    name: str
    bucket: int | str
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
    """``prompt.json``."""

    bundle: str
    release: str  # they hold for these only
    tolerance: float  # of every float, absolute
    cases: list[Case]
    v: int = 2


class CodeVectors(msgspec.Struct, frozen=True, kw_only=True):
    """``codes.json``."""

    hashes: dict[str, str]  # id → 16 hex digits
    codes: dict[str, list[int] | None]  # id → codes in the bundle; None: it lacks the item


class RolloutCase(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``rollout.json``."""

    seed: str
    app: str
    offers: list[Offer]
    place: float  # of the device in the first offer's bundle
    chosen: str | None


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """``reasons.json``."""

    edge: list[EdgeReason]
    bundle: list[BundleReason]
    keys: list[str]  # pinned
    seed: str
    now_ms: int


@dataclass(frozen=True)
class Made:
    """Everything."""

    prompt: Vectors
    codes: CodeVectors
    rollout: list[RolloutCase]
    reasons: Reasons
    faults: list[Fault]


def inputs(bundle: Bundle, items: list[str]) -> list[tuple[str, int | str, int, list[Event]]]:
    """Name, bucket, wall time and events of every case."""
    most = bundle.sizes.local_events
    last = bundle.sizes.num_buckets - 1

    def event(number: int, age_ms: int, item_id: str = "", event_id: str = "") -> Event:
        return Event(
            event_id=event_id or f"e{number:02}",
            user_id=USER,
            item_id=item_id or items[(7 * number) % len(items)],
            kind=list(Kind)[number % len(Kind)],
            at=NOW_MS - age_ms,
        )

    def in_order_of_code_points(make: Any, count: int) -> list[Event]:
        # U+1F9FC is after U+FF5E, though its first UTF-16 unit (D83E) is before it; one too many, so order decides.
        ids = ["\U0001f9fc", "\uff5e", *(f"e{number}" for number in range(count - 1))]
        return [make(number, 700, event_id=event_id) for number, event_id in enumerate(ids)]

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
        ("bucket by name", bundle.buckets[-1], NOW_MS, some(2)),
        ("bucket of no such name", "no such bucket", NOW_MS, some(2)),
        ("unknown item only", last, NOW_MS, [unknown]),
        ("unknown item pushes none out", 0, NOW_MS, [*some(most), unknown]),
        ("equal times, ids ordered by code point", 0, NOW_MS, in_order_of_code_points(event, most)),
        ("out of order, equal times", 0, NOW_MS, [event(3, 100), event(2, 900), event(1, 100)]),
        ("an id twice: the first wins", 0, NOW_MS, [event(1, 800), event(2, 400, event_id="e01"), event(3, 90)]),
        ("later than the clock", 0, NOW_MS, [event(1, 60_000), event(2, -60_000)]),
        ("a day and a year old", 0, NOW_MS, [event(1, 31_536_000_000), event(2, 86_400_000)]),
        ("midnight of a Monday", 0, 1_772_409_600_000, some(3)),
    ]


def prompt_vectors(bundle: Bundle, bundle_id: str, items: list[str]) -> Vectors:
    """The vectors of a bundle, whose items are ``items``."""
    encoder = OnnxEncoder(bundle.graph)
    cases: list[Case] = []
    for name, bucket, now_ms, events in inputs(bundle, items):
        known = bundle.known_bucket(bucket)
        made = features(events, bundle.codes, bundle.sizes, known, now_ms)
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
    return Vectors(bundle=bundle_id, release=bundle.release, tolerance=TOLERANCE, cases=cases)


def code_vectors(bundle: Bundle, items: list[str]) -> CodeVectors:
    """Hashes of odd ids, codes of the first items."""
    found = {item_id: bundle.codes(item_id) for item_id in [*items[:100], *IDS]}
    return CodeVectors(
        hashes={item_id: f"{item_hash(item_id):016x}" for item_id in IDS},
        codes={item_id: None if codes is None else codes.tolist() for item_id, codes in found.items()},
    )


def rollout_vectors() -> list[RolloutCase]:
    """Shares at, below and above the device's place, and versions that sort as numbers only."""
    mine = place(SEED, "b1")
    just_above = mine + 2**-32
    given = [
        ("1.0", [Offer(id="b1")]),
        ("1.0", [Offer(id="b1", share=mine), Offer(id="b2")]),
        ("1.0", [Offer(id="b1", share=just_above), Offer(id="b2")]),
        ("1.0", [Offer(id="b1", share=0.0)]),
        ("1.0", []),
        *(
            (app, [Offer(id="b1", min_app=least), Offer(id="b2")])
            for app, least in [
                ("2.10", "2.9"),
                ("2.9", "2.10"),
                ("2.9", "2.9.0"),
                ("2.9-beta", "2.9"),
                ("2.9.x.7", "2.9.1"),
                ("", "0"),
                ("", "1"),
                ("3", "2.99.99"),
            ]
        ),
    ]
    return [
        RolloutCase(
            seed=SEED,
            app=app,
            offers=offers,
            place=place(SEED, offers[0].id if offers else ""),
            chosen=chosen.id if (chosen := choose(offers, SEED, app)) else None,
        )
        for app, offers in given
    ]


def make(source: Source, tree: Path, settings: Settings = SETTINGS) -> Made:
    """Make the bundle in ``tree``, and all vectors of it."""
    release = read_release(source.folder, source.verify)
    manifest, _ = make_bundle(source, settings, tree)
    write_current(tree, seal(Current(made_at=NOW_MS, offers=[Offer(id=manifest.id)]), source.sign))
    key = source.sign.public_key()
    bundle = read_bundle(tree / manifest.id, [key])
    reasons = Reasons(edge=list(EdgeReason), bundle=list(BundleReason), keys=[pinned(key)], seed=SEED, now_ms=NOW_MS)
    return Made(
        prompt_vectors(bundle, manifest.id, release.item_ids),
        code_vectors(bundle, release.item_ids),
        rollout_vectors(),
        reasons,
        faults(tree, manifest, source.sign),
    )


def read(folder: Path = VECTORS) -> Vectors:
    """The prompt vectors in ``folder``."""
    return msgspec.json.decode((folder / "prompt.json").read_bytes(), type=Vectors)


def vectors(args: argparse.Namespace) -> dict[str, Any]:
    """The verb."""
    sign = load_private_key(args.sign or args.key.with_suffix(".pem"))
    source = Source(find_release(args.release), load_public_key(args.key), sign)
    tree = args.out / "bundle"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    made = make(source, tree, replace(SETTINGS, shard_bytes=args.shard_bytes))
    (args.out / "prompt.json").write_bytes(_one_case_a_line(made.prompt))
    for name in ("codes", "rollout", "reasons", "faults"):
        raw = msgspec.json.encode(getattr(made, name))
        (args.out / f"{name}.json").write_bytes(msgspec.json.format(raw, indent=1) + b"\n")
    return {"release": made.prompt.release, "bundle": made.prompt.bundle, "cases": len(made.prompt.cases)}


def _one_case_a_line(made: Vectors) -> bytes:
    cases = b",\n".join(msgspec.json.encode(case) for case in made.cases)
    head = msgspec.json.encode(msgspec.structs.replace(made, cases=[]))
    return head.replace(b'"cases":[]', b'"cases":[\n' + cases + b"\n]") + b"\n"
