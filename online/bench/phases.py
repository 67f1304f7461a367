"""The service under load: capacity, then shares of it, then more than it has, and what the reports say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from online.bench.load import Report, Tell
from online.bench.stage import job_of
from online.bench.stand import Address, cpu_s, generate
from schemas.cli import say
from schemas.errors import ReleaseError

CAPACITY_CONNECTIONS, CONNECTIONS = 8, 96
PATIENT_MS, WARM_S = 2000.0, 2.0
SHARES = (30, 60, 90)
OVERLOAD = 1.5
SUMMED = ("errors", "errors_5xx", "late", "late_in_service", "wrong_user", "compared", "requests")


def capacity_of(
    addresses: Sequence[Address], expected: Path, seconds: float, asked: Mapping[str, Any]
) -> tuple[float, Report]:
    """Answers generated a second for connections that always ask and have time. Raises ReleaseError without any."""
    patient: dict[str, Any] = {"rate": 0, "budget_ms": PATIENT_MS, **asked}
    patient["connections"] = CAPACITY_CONNECTIONS * (len(addresses) if asked.get("spread") else 1)
    generate(job_of(addresses, expected, seconds=WARM_S, **patient))  # caches, curve, memory
    full = generate(job_of(addresses, expected, seconds=seconds, **patient))
    capacity = full.generated / full.seconds
    if not capacity:
        raise ReleaseError("nothing is generated, so nothing can be measured", where="bench", value=full.skipped)
    say(f"  capacity {capacity:.0f} generated a second")
    return capacity, full


def measure(addresses: Sequence[Address], expected: Path, users: int, seconds: float, k: int) -> dict[str, Any]:
    """All phases, one after the other; the instances share the connections."""
    asked: dict[str, Any] = {"users": users, "k": k, "spread": True}
    capacity, full = capacity_of(addresses, expected, seconds, asked)
    reports, used_s = [full], dict[int, float]()
    figures: dict[str, Any] = {"instances": len(addresses), "capacity_per_s": capacity}

    def load(share: float, tell: Tell = Tell.VALUE) -> Report:
        settings: dict[str, Any] = {"connections": CONNECTIONS, "seconds": seconds, "tell": tell, **asked}
        report = generate(job_of(addresses, expected, rate=share * capacity, **settings))
        reports.append(report)
        return report

    for share in SHARES:
        before = sum(cpu_s(address.pid) for address in addresses)
        report = load(share / 100)
        used_s[share] = sum(cpu_s(address.pid) for address in addresses) - before
        figures |= latencies(report, share)
        if share == 60:
            figures |= costs(report, used_s[share])
    by_value = load(OVERLOAD)
    figures |= latencies(by_value, 150) | {"rungs_at_150": by_value.rungs}
    for tell, name in ((Tell.VALUE, "value"), (Tell.SAME, "fifo"), (Tell.RANDOM, "random")):
        report = by_value if tell is Tell.VALUE else load(OVERLOAD, tell)
        figures[f"goodput_{name}_at_150"] = report.good_value / report.value
    return figures | totals(reports)


def latencies(report: Report, share: int) -> dict[str, Any]:
    """By the client's clock, and what was generated in time."""
    latency = np.asarray(report.latency_ms)
    quantiles = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {
        **{f"{name}_ms_at_{share}": float(np.quantile(latency, q)) for name, q in quantiles.items()},
        f"in_deadline_at_{share}": 1 - report.late / report.requests,
        f"generate_share_at_{share}": report.generated / report.requests,
        f"not_generated_at_{share}": report.skipped,
    }


def costs(report: Report, used_s: float) -> dict[str, Any]:
    """Processor time of the service, and how much of the latency is not the service's work."""
    return {
        "requests_per_cpu_s": report.requests / used_s,
        "live_cpu_ms": used_s / report.requests * 1000,
        "items_per_answer": report.num_items / max(1, report.generated),
        "stages_ms_at_60": {name: ms / len(report.latency_ms) for name, ms in report.stages_ms.items()},
        "communication_share": report.communication_ms / sum(report.latency_ms),
        "generator_cpu_us": report.cpu_s / report.requests * 1e6,
    }


def totals(reports: Sequence[Report]) -> dict[str, int]:
    """Over all of them."""
    return {name: sum(getattr(report, name) for report in reports) for name in SUMMED}
