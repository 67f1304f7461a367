"""Durations and sizes as people write them: ``500ms``, ``26h``, ``64MB``."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\Z")


def seconds(text: str) -> float:
    """``"500ms"`` → 0.5. Raises ValueError naming the units."""
    return _parse(text, _SECONDS, "a duration is a number and one of ms, s, m, h, d, as in 500ms or 26h")


def num_bytes(text: str) -> int:
    """``"64MB"`` → 67108864. Raises ValueError naming the units."""
    return int(_parse(text, _BYTES, "a size is a number and one of B, KB, MB, GB, as in 64MB"))


def _parse(text: str, units: dict[str, float] | dict[str, int], rule: str) -> float:
    match = _NUMBER.match(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(rule)
    return float(match[1]) * units[match[2]]


def human_seconds(value: float) -> str:
    """0.5 → ``500 ms``, 93600 → ``26 h``, 1000000 → ``11.6 d``: a whole number of the largest unit that divides it, or
    else at least two of the largest unit."""
    for unit, size in reversed(_SECONDS.items()):
        if value >= size and (value % size == 0 or value >= 2 * size):
            return f"{value / size:,.0f} {unit}" if value >= 1000 * size else f"{value / size:.3g} {unit}"
    return f"{value * 1000:.3g} ms"
