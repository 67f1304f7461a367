"""The gate: whether a new release holds what the plan asks for, metric by metric, beside the current one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from schemas.errors import ReleaseError
from schemas.registry import Registry, ReleaseRow
from schemas.release import REPORT

LESS_IS_BETTER = ("calibration_error",)


@dataclass(frozen=True)
class Missed:
    """A metric that is too low (or too high, where less is better); ``reached`` is None where it was not measured."""

    metric: str
    reached: float | None
    needed: float
    current: float

    def __str__(self) -> str:
        bound = "at most" if self.metric in LESS_IS_BETTER else "at least"
        reached = "was not measured" if self.reached is None else f"is {self.reached:.4f}"
        return f"{self.metric} {reached}, the current release has {self.current:.4f}, {bound} {self.needed:.4f} needed"


def missed(gate: Mapping[str, float], new: Mapping[str, float], current: Mapping[str, float]) -> list[Missed]:
    """What ``new`` does not hold: ``gate`` has shares of the current values, by metric.

    Where less is better the bound is the current value divided by the share. A metric that the current release was
    not measured by is not judged.
    """
    found = []
    for metric, share in gate.items():
        if metric not in current:
            continue
        less = metric in LESS_IS_BETTER
        needed = (current[metric] / share if share else math.inf) if less else share * current[metric]
        reached = new.get(metric)
        if reached is None or (reached > needed if less else reached < needed):
            found.append(Missed(metric, reached, needed, current[metric]))
    return found


def check_gate(gate: Mapping[str, float], registry: Registry, release: str, data: str) -> str:
    """Refuse what is worse than the current release of the same data set. Returns what to add to the outcome.

    Raises:
        ReleaseError: naming each metric that is missed, with both values.
    """
    current = registry.current()
    if current is None or current.id == release:
        return ""
    if _data_of(current) != data:
        return f"; the gate was not applied: {current.id} is of other data"
    if low := missed(gate, registry.get(release).metrics, current.metrics):
        raise ReleaseError(
            "the gate holds it back: " + "; ".join(map(str, low)),
            where=release,
            mend=f'See its report; `./beforehand release promote {release} --force --why "…"` overrides.',
        )
    unknown = [metric for metric in gate if metric not in current.metrics]
    return f"; not judged, {current.id} was not measured by it: {', '.join(unknown)}" if unknown else ""


def _data_of(row: ReleaseRow) -> str | None:
    try:
        report: dict[str, Any] = msgspec.json.decode((Path(row.path) / REPORT).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return report.get("data")
