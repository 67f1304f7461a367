"""``python -m nearline numbers``: this tier's numbers for given cases, to be compared with the other tiers' (law 8)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from nearline.candidates import ListMaker
from nearline.release import load_release
from nearline.states import Reading, Record, StateMaker
from schemas.cases import read_cases
from schemas.cli import Result, verb
from schemas.locations import releases_dir
from schemas.window import Window


def add_numbers(verbs: Any) -> None:
    """Add the verb to the room's parser."""
    about = "this tier's numbers for given cases: states and lists with the default prompt"
    sub = verb(verbs, "numbers", _run, about, "parity --users 50 (it calls `python -m nearline numbers`)")
    sub.add_argument("--cases", type=Path, required=True, help="JSON lines (schemas.cases)")
    sub.add_argument("--release", required=True, metavar="ID", help="of the release")
    sub.add_argument("--out", type=Path, required=True, help="JSON to write: intent, items, scores by case")


def _run(args: argparse.Namespace) -> Result:
    release = load_release(releases_dir() / args.release)
    readings = [
        Reading(Record(0, place, case.user_id.encode(), None), case.user_id, Window(case.window))
        for place, case in enumerate(read_cases(args.cases))
    ]
    states = [state for state, _ in StateMaker(release).make(readings).states]
    lists = {made.user_id: made for made in ListMaker(release).make([state for state in states if state.num_rows])}
    numbers = {
        state.user_id: {
            "intent": np.frombuffer(state.rows, "<f2").astype(np.float64).tolist(),
            "items": lists[state.user_id].items,
            "scores": lists[state.user_id].scores,
        }
        for state in states
        if state.num_rows
    }
    args.out.write_bytes(msgspec.json.encode(numbers))
    return {"release": release.id, "cases": len(numbers), "out": str(args.out)}
