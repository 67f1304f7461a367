"""``bench``: capacity, then 60 % and 150 % of it, by value and first come first served."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import redis as redis_py

from online.bench import floor
from online.bench.load import USER, Report
from online.bench.stand import Address, cpu_s, generate, job_of, own_redis, service
from online.bench.synthetic import make_release, make_state, promote
from online.case import open_case
from online.release import Release, load
from online.releases import Loaded
from online.service import wall_ms
from online.store import Found
from schemas.api import RecallRequest
from schemas.cli import Result, say, step
from schemas.errors import ReleaseError, StoreError
from schemas.keys import state_key
from schemas.locations import ROOT, releases_dir
from schemas.plan import load_plan
from schemas.release import MANIFEST, Manifest, load_public_key
from schemas.state import encode_state

CAPACITY_CONNECTIONS, CONNECTIONS = 8, 96
PATIENT_MS, WARM_S = 2000.0, 2.0
KEPT_S = 3600
FIXTURE = ROOT / "tests" / "fixtures" / "release"


def bench(args: argparse.Namespace) -> Result:
    """The verb. Keys of the result as its --help and docs/look-up-service.md say."""
    source = args.release or newest_release()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="beforehand-bench-")))
        key = folder / "keys" / "release.pem"
        with step("release") as made, _state_folder(folder):
            manifest = make_release(source, folder / "release", _size(source, args.items), key)
            promote(manifest, folder / "release")
            made(f"{manifest.content.model.num_items:,} items around the decoder of {source.name}")
        redis_url = args.redis or stack.enter_context(own_redis(folder))
        with step("states") as made:
            users = fill(redis_url, manifest, args.users)
            made(f"{len(users):,} users")
        release = load(folder / "release", load_public_key(key.with_suffix(".pub")))
        result = _small(release, redis_url, users[:2000])
        del release
        result |= _phases(stack.enter_context(service(folder, redis_url)), args)
    _tell(result)
    return result


def newest_release() -> Path:
    """The newest release of the state folder, or the fixture."""
    found = sorted(releases_dir().glob(f"*/{MANIFEST}"), key=lambda path: path.stat().st_mtime)
    return found[-1].parent if found else FIXTURE


def fill(redis_url: str, manifest: Manifest, count: int) -> list[str]:
    """A state for each user; the load asks for these."""
    draw, users = np.random.default_rng(2), [USER.format(number) for number in range(count)]
    redis: Any = redis_py  # it is typed in parts only
    with redis.Redis.from_url(redis_url) as client:
        pipe = client.pipeline(transaction=False)
        for user_id in users:
            pipe.set(state_key(user_id), encode_state(make_state(manifest, user_id, draw), 1), ex=KEPT_S)
        try:
            pipe.execute()
        except redis.RedisError as error:
            raise StoreError(f"Redis can't be filled: {error}", where="--redis", value=redis_url) from None
    return users


def _size(source: Path, wanted: int) -> int:
    try:
        model = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest).content.model
    except (OSError, msgspec.DecodeError) as error:
        raise ReleaseError(f"not a release: {error}", where="--release", value=str(source)) from None
    most = model.codes**model.levels // 2
    if wanted > most:
        mend = f"Name a trained release with --release, or at most --items {most}."
        raise ReleaseError("this decoder has too few codes", where=str(source), value=wanted, mend=mend)
    return wanted


class _state_folder:  # noqa: N801 - used like a function
    """The registry is found by the environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._old = os.environ.get("BEFOREHAND_STATE")
        os.environ["BEFOREHAND_STATE"] = str(self._folder)

    def __exit__(self, *_: object) -> None:
        if self._old is None:
            del os.environ["BEFOREHAND_STATE"]
        else:
            os.environ["BEFOREHAND_STATE"] = self._old


def _small(release: Release, redis_url: str, users: list[str]) -> dict[str, Any]:
    """What is measured in this process."""
    rules = {name: asset.freshness for name, asset in load_plan().assets.items()}
    case = open_case(RecallRequest(user_id="somebody"), Found(None), Loaded(release), rules, wall_ms())
    assert case is not None
    return {
        "items": release.model.num_items,
        "floor_cpu_ms": floor.floor_cpu_ms(release, case.feed()),
        "decode_ms": release.usual_s["decode"] * 1000,
        "lookup_cpu_us": floor.lookup_cpu_us(redis_url, users),
        "mget_cpu_us": floor.mget_cpu_us(redis_url, users),
    }


def _phases(address: Address, args: argparse.Namespace) -> dict[str, Any]:
    online = load_plan().online
    common = {
        "seconds": args.seconds,
        "users": args.users,
        "budget_ms": float(online.budget) * 1000,
        "slack_ms": float(online.slack) * 1000,
    }
    patient = common | {"rate": 0, "connections": CAPACITY_CONNECTIONS, "budget_ms": PATIENT_MS}  # nothing is shed
    generate(job_of(address, **(patient | {"seconds": WARM_S})))  # caches, curve, memory
    full = generate(job_of(address, **patient))
    capacity = full.generated / full.seconds
    if not capacity:
        raise ReleaseError("nothing is generated, so nothing can be measured", where="bench", value=full.skipped)
    say(f"  capacity {capacity:.0f} generated a second")
    before = cpu_s(address.pid)
    at_60 = generate(job_of(address, rate=0.6 * capacity, connections=CONNECTIONS, **common))
    used_s = cpu_s(address.pid) - before
    over = job_of(address, rate=1.5 * capacity, connections=CONNECTIONS, **common)
    by_value = generate(over)
    fifo = generate(msgspec.structs.replace(over, tell_value=False))
    return _figures(capacity, used_s, at_60) | _overload(by_value, fifo) | _totals([full, at_60, by_value, fifo])


def _figures(capacity: float, used_s: float, at_60: Report) -> dict[str, Any]:
    latency = np.asarray(at_60.latency_ms)
    return {
        "capacity_per_s": capacity,
        "requests_per_cpu_s": at_60.requests / used_s,
        "live_cpu_ms": used_s / at_60.requests * 1000,
        "p50_ms_at_60": float(np.quantile(latency, 0.5)),
        "p99_ms_at_60": float(np.quantile(latency, 0.99)),
        "p999_ms_at_60": float(np.quantile(latency, 0.999)),
        "generate_share_at_60": at_60.generated / at_60.requests,
        "not_generated_at_60": at_60.skipped,
        "in_deadline_at_60": 1 - at_60.late / at_60.requests,
        "communication_share": at_60.communication_ms / float(latency.sum()),
        "generator_cpu_us": at_60.cpu_s / at_60.requests * 1e6,
    }


def _overload(by_value: Report, fifo: Report) -> dict[str, Any]:
    return {
        "in_deadline_at_150": 1 - by_value.late / by_value.requests,
        "goodput_value_at_150": by_value.good_value / by_value.value,
        "goodput_fifo_at_150": fifo.good_value / fifo.value,
        "generate_share_at_150": by_value.generated / by_value.requests,
        "rungs_at_150": by_value.rungs,
        "not_generated_at_150": by_value.skipped,
    }


def _totals(reports: list[Report]) -> dict[str, Any]:
    return {name: sum(getattr(r, name) for r in reports) for name in ("errors", "late", "wrong_user", "requests")}


def _tell(result: dict[str, Any]) -> None:
    for name, value in result.items():
        say(f"  {name:<24} {value:.4g}" if isinstance(value, float) else f"  {name:<24} {value}")
