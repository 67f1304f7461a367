"""How old each asset is now: offline by the registry, near-line by a sample of Redis, else unknown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from statistics import median
from typing import Any

import msgspec
import redis

from infra.plan.frozen import Reach
from schemas.errors import DataError
from schemas.freshness import age_s
from schemas.keys import PREFIX
from schemas.locations import releases_dir
from schemas.names import Tier
from schemas.plan import Asset, Plan
from schemas.registry import Registry
from schemas.registry.builds import Builds, FreshRow
from schemas.registry.database import wall_ms
from schemas.release import MANIFEST, Manifest
from schemas.state import decode_candidates, decode_state

SAMPLE = 500
TIMEOUT_S = 2.0
KINDS = {"intent_state": ("state", decode_state), "candidates": ("candidates", decode_candidates)}


class Age(msgspec.Struct, frozen=True):
    """``state`` is FRESH, STALE, EXPIRED, MISSING, or unknown; ``note`` says where the age comes from."""

    state: str
    age_s: float | None
    note: str
    num_keys: int | None = None


def ages(plan: Plan, registry: Registry) -> dict[str, Age]:
    """Of every asset of the plan."""
    rows, link = Builds(registry.database).freshness(), connect()
    return {name: _age(name, asset, rows, link) for name, asset in plan.assets.items()}


def connect() -> redis.Redis | None:
    """Redis of ``$BEFOREHAND_REDIS``; None when it is not set or does not answer."""
    url = os.environ.get("BEFOREHAND_REDIS")
    if not url:
        return None
    try:
        link = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
        link.ping()
    except (redis.RedisError, ValueError, OSError):
        return None
    return link


def reach(registry: Registry) -> Reach:
    """What a new release would touch."""
    num_items, current = None, registry.current()
    if current is not None:
        num_items = _num_items(current.path)
    link = connect()
    if link is None:
        return Reach(num_items)
    try:
        memory: dict[str, Any] = link.info("memory")  # pyright: ignore[reportAssignmentType]
        return Reach(num_items, int(link.dbsize()), memory.get("used_memory_dataset"))  # pyright: ignore[reportArgumentType]
    except redis.RedisError:
        return Reach(num_items)


def _num_items(path: str) -> int | None:
    try:
        raw = (releases_dir() / path / MANIFEST).read_bytes()
        return msgspec.json.decode(raw, type=Manifest).content.model.num_items
    except (OSError, msgspec.DecodeError):
        return None


def _age(name: str, asset: Asset, rows: dict[str, FreshRow], link: redis.Redis | None) -> Age:
    if asset.tier is Tier.OFFLINE:
        row = rows.get(name)
        if row is None:
            return Age("MISSING", None, "no build of it in the registry")
        age = age_s(row.checked_at, wall_ms())
        made = "" if row.made_at == row.checked_at else ", unchanged since an earlier build"
        return Age(asset.freshness.judge(age), round(age, 1), f"built from {row.data}{made}")
    if name not in KINDS:
        return Age(
            "unknown", None, "made on the device, with each request" if asset.tier is Tier.EDGE else "not stored"
        )
    if link is None:
        return Age("unknown", None, "Redis can't be asked")
    try:
        return sampled(name, asset, link)
    except redis.RedisError as error:
        return Age("unknown", None, f"Redis: {error}")


def sampled(name: str, asset: Asset, link: redis.Redis) -> Age:
    """The median age of the first keys that Redis finds. Raises redis.RedisError."""
    now = wall_ms()
    found = [age_s(made_at, now) for made_at in _made_at(name, link)]
    if not found:
        return Age("MISSING", None, "no key of it in Redis", 0)
    middle = median(found)
    share = sum(asset.freshness.judge(age) == "FRESH" for age in found) / len(found)
    more = "at least " if len(found) == SAMPLE else ""
    note = f"median of {more}{len(found)} keys, {share:.0%} fresh"
    return Age(asset.freshness.judge(middle), round(middle, 1), note, len(found))


def _made_at(name: str, link: redis.Redis) -> Iterator[int]:
    """When the first keys that are found were made, ms. A value that can't be read is left out."""
    kind, decode = KINDS[name]
    for key in islice(link.scan_iter(match=f"{PREFIX}:*:{kind}", count=SAMPLE), SAMPLE):
        raw: Any = link.get(key)
        if raw is not None:
            try:
                yield decode(raw).made_at
            except DataError:
                continue
