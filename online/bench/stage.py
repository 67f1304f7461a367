"""What every measurement of the service needs: a made-up release that serves, users with states, what those make."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import redis as redis_py

from online.bench.load import COMPARED, USER, Job
from online.bench.stand import Address, port_of
from online.bench.synthetic import make_state
from online.cache import Pair
from online.case import Case, open_case
from online.release import Release
from online.releases import Loaded
from online.service import wall_ms
from online.store import Found
from schemas.api import RecallRequest
from schemas.cli import track
from schemas.errors import ReleaseError, StoreError
from schemas.keys import state_key
from schemas.locations import ROOT, releases_dir
from schemas.plan import load_plan
from schemas.release import MANIFEST, Manifest
from schemas.state import encode_state

KEPT_S = 3600
EXPECTED_USERS = 2_000
FIXTURE = ROOT / "tests" / "fixtures" / "release"
UNTRAINED = "bench-untrained"
"""Of the state folder: where the launcher leaves a release without training when no trained one is there."""


def newest_release() -> Path:
    """The newest release of the state folder, an untrained one, or the fixture."""
    for folder in (releases_dir(), releases_dir().with_name(UNTRAINED)):
        found = sorted(folder.glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime)
        if found:
            return found[-1].parent
    return FIXTURE


def checked_size(source: Path, wanted: int) -> int:
    """``wanted`` items, if the decoder of ``source`` has codes for so many. Raises ReleaseError."""
    try:
        model = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest).content.model
    except (OSError, msgspec.DecodeError) as error:
        raise ReleaseError(f"not a release: {error}", where="--release", value=str(source)) from None
    most = model.codes**model.levels // 2
    if wanted > most:
        mend = f"Name a trained release with --release, or at most --items {most}."
        raise ReleaseError("this decoder has too few codes", where=str(source), value=wanted, mend=mend)
    return wanted


@contextmanager
def state_folder(folder: Path) -> Generator[None]:
    """The registry is found by the environment."""
    old = os.environ.get("BEFOREHAND_STATE")
    os.environ["BEFOREHAND_STATE"] = str(folder)
    try:
        yield
    finally:
        if old is None:
            del os.environ["BEFOREHAND_STATE"]
        else:
            os.environ["BEFOREHAND_STATE"] = old


class Users:
    """The users that the load asks for, and their states: the same ones for every release of the same sizes."""

    def __init__(self, manifest: Manifest, count: int) -> None:
        draw = np.random.default_rng(2)
        self.ids = [USER.format(number) for number in range(count)]
        self._states = [make_state(manifest, user_id, draw) for user_id in self.ids]

    def store(self, redis_url: str, release_id: str | None = None, every: int = 1) -> None:
        """Write the states, of each ``every``-th user, as made just now by ``release_id``. Raises StoreError."""
        redis: Any = redis_py  # it is typed in parts only
        with redis.Redis.from_url(redis_url) as client:
            pipe = client.pipeline(transaction=False)
            for user_id, raw in zip(self.ids[::every], self.encoded(release_id, every), strict=True):
                pipe.set(state_key(user_id), raw, ex=KEPT_S)
            try:
                pipe.execute()
            except redis.RedisError as error:
                raise StoreError(f"Redis can't be filled: {error}", where="--redis", value=redis_url) from None

    def encoded(self, release_id: str | None = None, every: int = 1) -> list[bytes]:
        """As they are stored."""
        now_ms = wall_ms()
        return [
            encode_state(msgspec.structs.replace(state, release=release_id or state.release, made_at=now_ms), 1)
            for state in self._states[::every]
        ]

    def cases(self, release: Release, count: int, k: int) -> Sequence[Case]:
        """The first users' requests, looked up."""
        rules = {name: asset.freshness for name, asset in load_plan().assets.items()}
        raws = self.encoded(release.id)[:count]
        found = [Found(Pair(raw, None)) for raw in raws]
        asked = [RecallRequest(user_id=user_id, k=k) for user_id in self.ids[:count]]
        cases = [open_case(one, had, Loaded(release), rules, wall_ms()) for one, had in zip(asked, found, strict=True)]
        return [case for case in cases if case is not None]

    def expect(self, release: Release, path: Path, k: int) -> Path:
        """Write what the first users' own states make: user -> items, msgpack."""
        expected: dict[str, list[str]] = {}
        for case in track(self.cases(release, EXPECTED_USERS, k), "what users should get"):
            items = release.decoder.run(case.feed())[0][0]
            numbers = [number for number in items.tolist() if number >= 0][:COMPARED]
            expected[case.request.user_id] = [release.catalogue.item_ids[number] for number in numbers]
        path.write_bytes(msgspec.msgpack.encode(expected))
        return path


def job_of(addresses: Sequence[Address], expected: Path | None, **settings: Any) -> Job:
    """A job against these instances, inside the plan's budget unless another is named."""
    online = load_plan().online
    ours = {"budget_ms": float(online.budget) * 1000, "slack_ms": float(online.slack) * 1000}
    ports = [port_of(address) for address in addresses]
    return msgspec.convert(
        {"host": "127.0.0.1", "ports": ports, "expected": str(expected) if expected else None, **ours, **settings},
        Job,
        strict=False,
    )
