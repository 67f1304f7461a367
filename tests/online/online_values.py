"""Values to store, a clock to move, and the fixture release's facts; imported by the tests of this folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import redis

from online.deadline import Deadline
from online.release import Release
from schemas.keys import candidates_key, state_key
from schemas.locations import ROOT
from schemas.release import load_public_key, read_manifest
from schemas.state import Candidates, IntentState, encode_candidates, encode_state

FIXTURES = Path(__file__).parent.parent / "fixtures"
KEY = load_public_key(FIXTURES / "release.pub")
NOW_MS = read_manifest(FIXTURES / "release", KEY).made_at + 60_000
LONG_S = 30.0
"""A budget that no machine misses."""


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def long() -> Deadline:
    """A deadline that does not come."""
    return Deadline(LONG_S)


def make_state(release: Release, user_id: str = "u1", /, **changes: object) -> IntentState:
    """A whole state; its rows and window follow from the user id."""
    seed = sum(user_id.encode())
    draw = np.random.default_rng(seed)
    model = release.model
    fields = {
        "user_id": user_id,
        "release": release.id,
        "made_at": NOW_MS - 1000,
        "watermark": NOW_MS - 2000,
        "arrived_at": NOW_MS - 1500,
        "bucket": 1 + seed % (model.num_buckets - 1),
        "rows": draw.standard_normal((model.state_rows, model.width)).astype("<f2").tobytes(),
        "num_rows": model.state_rows,
        "items": draw.permutation(model.num_items)[: model.window].tolist(),
        "kinds": [2] * model.window,
        "times": [NOW_MS - 2000 - 1000 * i for i in range(model.window)],
        "neighbour_items": draw.permutation(model.num_items)[: model.neighbours].tolist(),
        "neighbour_scores": np.linspace(1, 0.1, model.neighbours).tolist(),
    }
    return IntentState(**(fields | changes))


def make_candidates(release: Release, user_id: str = "u1", /, **changes: object) -> Candidates:
    fields = {
        "user_id": user_id,
        "release": release.id,
        "made_at": NOW_MS - 1000,
        "watermark": NOW_MS - 2000,
        "items": [5, 3, 8, 13],
        "scores": [4.0, 3.0, 2.0, 1.0],
    }
    return Candidates(**(fields | changes))


def patient_plan(folder: Path) -> Path:
    """The repository's plan with time to spare, for a service of its own: a busy machine changes no answer."""
    plan = (ROOT / "plan.toml").read_text()
    for old, new in (('budget = "50ms"', 'budget = "5s"'), ('store_timeout = "15ms"', 'store_timeout = "2s"')):
        assert old in plan
        plan = plan.replace(old, new)
    path = folder / "plan.toml"
    path.write_text(plan)
    return path


def put(client: redis.Redis, value: IntentState | Candidates, key_of: str | None = None) -> None:
    """Store a value where the user's, or ``key_of``'s, belongs."""
    user_id = key_of or value.user_id
    if isinstance(value, IntentState):
        client.set(state_key(user_id), encode_state(value, 1))
    else:
        client.set(candidates_key(user_id), encode_candidates(value, 1))


def until_true(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait for what another thread does."""
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.005)
