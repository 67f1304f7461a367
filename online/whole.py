"""What a request costs when nothing is done beforehand: the same inputs, encoded here and now, stage by stage."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from online.case import Case, open_case
from online.deadline import Deadline
from online.encoders import intent_feed, neighbours, prompt_feed
from online.graph import Graph
from online.release import Release, load_encoders
from online.releases import Loaded, load_row
from online.service import wall_ms
from online.store import Store
from online.targets import Target
from schemas.api import RecallRequest
from schemas.cli import track
from schemas.errors import ReleaseError
from schemas.locations import address, public_key_path
from schemas.names import Kind
from schemas.plan import load_plan
from schemas.registry import Registry
from schemas.release import load_public_key, read_manifest

USERS = 200
STORE_WAIT_S = 1.0
T = TypeVar("T")
LIVE = ("intent_encode", "neighbours", "prompt_encode", "decode")


class Stopwatch:
    """Milliseconds by stage, one entry per user."""

    def __init__(self) -> None:
        self.took_ms: defaultdict[str, list[float]] = defaultdict(list)

    def time(self, stage: str, work: Callable[[], T]) -> T:
        """Do ``work`` and book it."""
        begun = time.perf_counter()
        result = work()
        self.took_ms[stage].append((time.perf_counter() - begun) * 1000)
        return result

    def medians(self) -> dict[str, float]:
        """By stage."""
        return {stage: statistics.median(took) for stage, took in self.took_ms.items()}


async def measure_whole(targets: Sequence[Target]) -> dict[str, Any]:
    """Time up to ``USERS`` users that have a state, both ways, in this process, one thread.

    ``stages`` are medians in ms; ``all_live_ms`` is store, encoders, neighbours and decode, ``beforehand_ms`` is store
    and decode. ``window_items`` is the median number of items in a window. ``max_row_difference`` compares the rows
    encoded here with the stored ones (fp16).

    Raises:
        ReleaseError: no release is current, or none of the users has a state of it.
    """
    row = Registry().current()
    if row is None:
        raise ReleaseError("no release is current", mend="Build and promote one first.")
    release = load_row(row)
    encoders = load_encoders(release, read_manifest(release.folder, load_public_key(public_key_path())))
    plan = load_plan()
    rules = {name: asset.freshness for name, asset in plan.assets.items()}
    store = Store(address("redis"), timeout_s=STORE_WAIT_S, cache_bytes=0)
    watch, differences, sizes = Stopwatch(), list[float](), list[int]()
    for target in track(targets, "all live"):
        if len(watch.took_ms["store"]) >= USERS:
            break
        begun = time.perf_counter()
        found = await store.find(target.user_id, Deadline(STORE_WAIT_S))
        store_ms = (time.perf_counter() - begun) * 1000
        case = open_case(RecallRequest(user_id=target.user_id), found, Loaded(release), rules, wall_ms())
        if case is not None and case.state is not None:
            watch.took_ms["store"].append(store_ms)
            differences.append(_time_user(case, target, encoders, watch))
            sizes.append(len(case.state.items))
    await store.close()
    return _report(watch) | {
        "window_items": statistics.median(sizes),
        "max_row_difference": max(differences),
    }


def _time_user(case: Case, target: Target, encoders: tuple[Graph, Graph], watch: Stopwatch) -> float:
    state, release = case.state, case.release
    assert state is not None
    model, arrays = release.model, release.arrays
    intent, prompt = encoders
    at = target.at or state.watermark
    local = _local(release, target)
    rows = watch.time("intent_encode", lambda: intent.run(intent_feed(model, state.items, state.kinds, state.times))[0])
    rows = np.ascontiguousarray(rows[:, -model.state_rows :])
    near = watch.time(
        "neighbours", lambda: neighbours(model, arrays["neighbour_items"], arrays["neighbour_scores"], state.items)
    )
    prompted = watch.time(
        "prompt_encode", lambda: prompt.run(prompt_feed(model, arrays["item_codes"], case.bucket, at, local))[0]
    )
    limits = (case.limits.exclude, case.limits.allow)
    feed = release.decoder_feed(rows, prompted, near, limits)
    watch.time("decode", lambda: release.decoder.run(feed))
    stored = case.feed()
    watch.time("decode_stored", lambda: release.decoder.run(stored))
    return float(np.abs(rows - case.intent).max())


def _local(release: Release, target: Target) -> list[tuple[int, int, int]]:
    known = release.item_numbers
    return [(known[e.item_id], Kind(e.kind).number, e.at) for e in target.local_events if e.item_id in known]


def _report(watch: Stopwatch) -> dict[str, Any]:
    stages = watch.medians()
    if not stages:
        raise ReleaseError("none of the users has a state of the current release", mend="Run `./beforehand worker`.")
    return {
        "users": len(watch.took_ms["store"]),
        "stages": stages,
        "all_live_ms": stages["store"] + sum(stages[name] for name in LIVE),
        "beforehand_ms": stages["store"] + stages["decode_stored"],
    }
