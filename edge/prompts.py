"""``edge prompts``: the prompt embeddings of recorded sessions, made as a device would make them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edge.bundle import Bundle
from edge.locate import find_release, read_profiles
from edge.read_bundle import read_bundle
from edge.read_release import read_release
from edge.runtime import Clock, Edge
from schemas import cli
from schemas.api import PromptEmbedding
from schemas.errors import DataError
from schemas.event import Event, Id
from schemas.release import UNKNOWN_BUCKET, load_public_key, read_manifest

LOAD_LIMIT_MS = 60_000.0


class Target(msgspec.Struct, frozen=True):
    """The part of a line of targets.jsonl that the device knows; the items to be found are not read."""

    user_id: Id
    at: int  # wall time of the request, ms
    local_events: list[Event] = []


class Made(msgspec.Struct, frozen=True):
    """A line of the output."""

    user_id: str
    prompt: PromptEmbedding


def read_targets(path: Path) -> Iterator[Target]:
    """The lines of ``path`` that have local events.

    Raises:
        DataError: no such file, or naming the line that is not a target.
    """
    decoder = msgspec.json.Decoder(Target)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                target = _decode(decoder, line, f"{path}:{number}") if line.strip() else None
                if target is not None and target.local_events:
                    yield target
    except OSError as error:
        raise DataError(f"no targets: {error.strerror}", where=str(path), mend="Make them with `build`.") from None


def _decode(decoder: msgspec.json.Decoder[Target], line: bytes, where: str) -> Target:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"not a target: {error}",
            where=where,
            value=line[:200],
            mend="A line has user_id, at and local_events (events in full).",
        ) from None


@dataclass
class _Replay:
    """One runtime that lives through recorded sessions; its wall clock is the session's."""

    bundle: Bundle
    users: dict[str, int]
    time_limit_ms: float
    now_ms: int = 0
    took_ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.edge = Edge(self.bundle, consent=True, clock=Clock(now_ms=lambda: self.now_ms))

    def session(self, target: Target) -> PromptEmbedding | None:
        """The session's prompt embedding, or None, counted by the runtime."""
        self.now_ms = target.at
        self.edge.forget()
        self.edge.set_user(target.user_id, self.users.get(target.user_id, UNKNOWN_BUCKET))
        for event in target.local_events:
            self.edge.track(event)
        limit_ms = self.time_limit_ms if self.took_ms else LOAD_LIMIT_MS
        begun = time.perf_counter()
        made = self.edge.prompt(limit_ms)
        self.took_ms.append((time.perf_counter() - begun) * 1000)
        return made if isinstance(made, PromptEmbedding) else None


def prompts(args: argparse.Namespace) -> dict[str, Any]:
    """The verb. Writes the output beside its place first: it is there whole or not at all."""
    begun = time.perf_counter()
    _check(args)
    folder = find_release(args.release)
    key = load_public_key(args.key)
    bundle = read_bundle(args.bundle, [key]) if args.bundle else read_release(folder, key).as_bundle()
    if args.bundle and bundle.release != read_manifest(folder, key).id:
        raise DataError("a bundle of another release", where="--bundle", value=bundle.release, mend="Make it anew.")
    users = read_profiles(folder, key).users
    bundle_ms = (time.perf_counter() - begun) * 1000
    replay = _Replay(bundle, users, args.time_limit)
    with cli.step("prompt embeddings") as made:
        num_made = _write(args.out, replay, list(islice(read_targets(args.targets), args.limit)))
        made(f"{num_made} of {len(replay.took_ms)} sessions")
    first_ms, *warm_ms = replay.took_ms or [0.0]
    p50, p99 = np.percentile(warm_ms or [first_ms], [50, 99])
    return {
        "release": bundle.release,
        "sessions": len(replay.took_ms),
        "encoded": num_made,
        "reasons": dict(replay.edge.prompts),
        "events": dict(replay.edge.events),
        "encode_ms": {"p50": round(float(p50), 3), "p99": round(float(p99), 3)},
        "cold_start_ms": {"bundle": round(bundle_ms, 1), "first_prompt": round(first_ms, 1)},
        "seconds": round(time.perf_counter() - begun, 3),
        "out": str(args.out),
    }


def _check(args: argparse.Namespace) -> None:
    if args.limit is not None and args.limit < 1:
        raise DataError("not a number of sessions", where="--limit", value=args.limit, mend="Give 1 or more.")
    if not args.out.parent.is_dir():
        raise DataError("no such folder", where="--out", value=str(args.out.parent), mend="Make it first.")


def _write(out: Path, replay: _Replay, targets: list[Target]) -> int:
    encoder = msgspec.json.Encoder()
    part = out.with_name(out.name + ".part")
    num_made = 0
    with part.open("wb") as lines:
        for target in cli.track(targets, "sessions"):
            prompt = replay.session(target)
            if prompt is not None:
                lines.write(encoder.encode(Made(target.user_id, prompt)) + b"\n")
                num_made += 1
    part.replace(out)
    return num_made
