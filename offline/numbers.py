"""``python -m offline numbers``: the offline tier's numbers for given cases, compared with the others' (law 8)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from offline.gain import Asked, Tiers
from schemas import cli
from schemas.cases import ParityCase, read_cases
from schemas.graphs import INTENT_ENCODER
from schemas.locations import public_key_path, releases_dir
from schemas.names import Kind
from schemas.release import UNKNOWN_BUCKET


def numbers(args: argparse.Namespace) -> cli.Result:
    """The verb."""
    tiers = Tiers(releases_dir() / args.release, public_key_path())
    known = {item: number for number, item in enumerate(tiers.item_ids)}
    made: dict[str, Any] = {}
    for case in read_cases(args.cases):
        asked = _asked(case, known, tiers)
        listed, prompted = (tiers.lists([asked], "", on_device=on)[0] for on in (False, True))
        made[case.user_id] = {
            "intent": tiers.states([asked]).ravel().astype(float).tolist(),
            "prompt": tiers.prompts([asked], on_device=True).ravel().astype(float).tolist(),
            "items": listed[listed >= 0].tolist(),
            "prompted_items": prompted[prompted >= 0].tolist(),
        }
    args.out.write_bytes(msgspec.json.encode(made))
    return {"release": tiers.id, "cases": len(made), "out": str(args.out)}


def _asked(case: ParityCase, known: dict[str, int], tiers: Tiers) -> Asked:
    newest_first = [(known[e.item_id], Kind(e.kind).number, e.at) for e in case.window if e.item_id in known]
    window = newest_first[: tiers.model.window][::-1]
    item, kind, at = (np.array([event[part] for event in window], np.int64) for part in range(3))
    local = [(known[e.item_id], e.kind.number, e.at) for e in case.local_events if e.item_id in known]
    bucket = tiers.users.get(case.user_id, UNKNOWN_BUCKET)
    return Asked(case.user_id, bucket, case.at, item, kind, at, np.zeros(0, np.int64), local)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("--cases", type=Path, required=True, help="JSON lines (schemas.cases)")
    add("--release", required=True, metavar="ID", help="of the release")
    add("--out", type=Path, required=True, help=f"JSON to write: rows of {INTENT_ENCODER} and the like, by case")
