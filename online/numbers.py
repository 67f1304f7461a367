"""``python -m online numbers``: this tier's numbers for given cases, to be compared with the other tiers' (law 8)."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
import numpy as np

from online.encoders import intent_feed, neighbours, prompt_feed
from online.graph import Array, Graph
from online.release import Release, load, load_encoders
from schemas.cases import ParityCase, read_cases
from schemas.cli import Result
from schemas.locations import public_key_path, releases_dir
from schemas.names import Kind
from schemas.release import UNKNOWN_BUCKET, load_public_key, read_manifest


def numbers(args: argparse.Namespace) -> Result:
    """The verb: both encoders and the decoder, with the device's prompt and with the default one."""
    folder, key = releases_dir() / args.release, load_public_key(public_key_path())
    release = load(folder, key, args.release)
    graphs = load_encoders(release, read_manifest(folder, key))
    made = {case.user_id: _numbers(release, graphs, case) for case in read_cases(args.cases)}
    args.out.write_bytes(msgspec.json.encode(made))
    return {"release": release.id, "cases": len(made), "out": str(args.out)}


def _numbers(release: Release, graphs: tuple[Graph, Graph], case: ParityCase) -> dict[str, Any]:
    model, arrays, known = release.model, release.arrays, release.item_numbers
    window = [(known[e.item_id], Kind(e.kind).number, e.at) for e in case.window if e.item_id in known][: model.window]
    items, kinds, times = ([event[part] for event in window] for part in range(3))
    local = [(known[e.item_id], e.kind.number, e.at) for e in case.local_events if e.item_id in known]
    bucket = release.profiles.users.get(case.user_id, UNKNOWN_BUCKET)
    rows = graphs[0].run(intent_feed(model, items, kinds, times))[0][:, -model.state_rows :]
    # A device that knows nothing sends nothing: the service then takes the bucket's default rows.
    prompt = arrays["prompt_defaults"][[bucket]]
    if local:
        prompt = graphs[1].run(prompt_feed(model, arrays["item_codes"], bucket, case.at, local))[0]
    # As the store holds them: the decoder never sees more.
    stored = np.ascontiguousarray(rows).astype("<f2").astype(np.float32)
    near = neighbours(model, arrays["neighbour_items"], arrays["neighbour_scores"], items)
    listed = _decode(release, stored, arrays["prompt_defaults"][[bucket]], near)
    prompted = _decode(release, stored, prompt, near)
    return {
        "intent": rows.ravel().astype(float).tolist(),
        "prompt": prompt.ravel().astype(float).tolist(),
        "items": listed[0],
        "scores": listed[1],
        "prompted_items": prompted[0],
        "prompted_scores": prompted[1],
    }


def _decode(release: Release, rows: Array, prompt: Array, near: tuple[Array, Array]) -> tuple[list[int], list[float]]:
    none = np.full((1, 1), -1, np.int64)
    items, scores = release.decoder.run(release.decoder_feed(rows, prompt, near, (none, none)))[:2]
    filled = items[0] >= 0
    return items[0][filled].tolist(), scores[0][filled].astype(float).tolist()
