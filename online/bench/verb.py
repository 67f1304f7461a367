"""``bench``: the service at shares of its capacity, what it can't cost less than, and what others cost for the same."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from online.bench import floor, live, phases, rivals
from online.bench.faults import bench_faults
from online.bench.stage import Users, checked_size, newest_release, state_folder
from online.bench.stalls import load_stalls
from online.bench.stand import own_redis, service
from online.bench.synthetic import make_release, promote
from online.release import Release, load
from schemas.cli import Result, say, step
from schemas.errors import BeforehandError
from schemas.release import REPORT, Manifest, load_public_key

LOOKED_UP = 2_000
CASES = 300


def bench(args: argparse.Namespace) -> Result:
    """The verb. Keys of the result as docs/look-up-service.md says."""
    if min(args.k, args.users, args.requests, args.instances) < 1 or not 0 < args.core_hour_price < float("inf"):
        counts = "-k, --users, --requests, --instances, --core-hour-price"
        raise BeforehandError("counts and prices are above zero", where=counts)
    return bench_faults(args) if args.faults else _bench(args)


def _bench(args: argparse.Namespace) -> Result:
    source = args.release or newest_release()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="beforehand-bench-")))
        key = folder / "keys" / "release.pem"
        with step("release") as made, state_folder(folder):
            manifest = make_release(source, folder / "release", checked_size(source, args.items), key)
            promote(manifest, folder / "release")
            made(f"{manifest.content.model.num_items:,} items around the decoder of {source.name}")
        redis_url = args.redis or stack.enter_context(own_redis(folder))
        with step("states") as made:
            users = Users(manifest, args.users)
            users.store(redis_url)
            made(f"{args.users:,} users")
        public = load_public_key(key.with_suffix(".pub"))
        result: dict[str, Any] = {"trained": not _untrained(source), **load_stalls(folder / "release", public)}
        release = load(folder / "release", public)
        result |= _alone(release, manifest, users, redis_url, args.k)
        expected = users.expect(release, folder / "expected", args.k)
        states = dict(zip(users.ids, users.encoded(), strict=True))
        del release
        result |= rivals.compare(folder / "release", manifest.content.model, args.k, redis_url, states)
        addresses = [stack.enter_context(service(folder, redis_url)) for _ in range(args.instances)]
        result |= phases.measure(addresses, expected, args.users, args.seconds, args.k)
    result |= _prices(result, args.core_hour_price, manifest.content.model.levels, args.k)
    for name, value in result.items():
        say(f"  {name:<28} {value:.4g}" if isinstance(value, float) else f"  {name:<28} {value}")
    return result


def _untrained(source: Path) -> bool:
    report = source / REPORT
    return report.exists() and bool(msgspec.json.decode(report.read_bytes()).get("untrained"))


def _alone(release: Release, manifest: Manifest, users: Users, redis_url: str, k: int) -> dict[str, Any]:
    """What is measured in this process, without the service."""
    cases = users.cases(release, CASES, k)
    asked = users.ids[:LOOKED_UP]
    return {
        "items": release.model.num_items,
        "floor_cpu_ms": floor.floor_cpu_ms(release, cases[0].feed()),
        **live.model_cpu_ms(release, manifest, cases),
        "lookup_cpu_us": floor.lookup_cpu_us(redis_url, asked),
        "mget_cpu_us": floor.mget_cpu_us(redis_url, asked),
    }


def _prices(result: dict[str, Any], core_hour: float, levels: int, k: int) -> dict[str, float | None]:
    """Of a million generated codes, in the unit of ``core_hour``. The rivals' hold their model's work alone."""

    def price(cpu_ms: float | None, items: float) -> float | None:
        codes = items * levels
        return None if cpu_ms is None or not codes else cpu_ms / 3_600_000 * core_hour / codes * 1e6

    items = result["items_per_answer"]
    return {
        "core_hour_price": core_hour,
        "cost_per_million_codes": price(result["live_cpu_ms"], items),
        "whole_cost_per_million_codes": price(result["whole_model_cpu_ms"], items),
        "hf_generate_cost_per_million_codes": price(result["hf_generate_cpu_ms"], k),
    }
