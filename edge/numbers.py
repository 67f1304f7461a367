"""``python -m edge edge numbers``: a device's numbers for given cases, to be compared with the other tiers' (law 8)."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
import numpy as np

from edge.locate import find_release, read_profiles
from edge.read_bundle import read_bundle
from edge.read_release import read_release
from edge.runtime import Clock, Edge
from schemas.api import PromptEmbedding
from schemas.cases import read_cases
from schemas.release import UNKNOWN_BUCKET, load_public_key

LIMIT_MS = 60_000.0


def numbers(args: argparse.Namespace) -> dict[str, Any]:
    """The verb: prompt rows by case, with the release's own graph, or with a bundle's as devices run it."""
    folder, key = find_release(args.release), load_public_key(args.key)
    bundle = read_bundle(args.bundle, [key]) if args.bundle else read_release(folder, key).as_bundle()
    users = read_profiles(folder, key).users
    now_ms = 0
    edge = Edge(bundle, consent=True, clock=Clock(now_ms=lambda: now_ms))
    made: dict[str, dict[str, list[float]]] = {}
    for case in read_cases(args.cases):
        now_ms = case.at
        edge.forget()
        edge.set_user(case.user_id, users.get(case.user_id, UNKNOWN_BUCKET))
        for event in case.local_events:
            edge.track(event)
        prompt = edge.prompt(LIMIT_MS)
        if isinstance(prompt, PromptEmbedding):
            made[case.user_id] = {"prompt": np.frombuffer(prompt.rows, "<f4").astype(float).tolist()}
    args.out.write_bytes(msgspec.json.encode(made))
    return {"release": bundle.release, "cases": len(made), "out": str(args.out)}
