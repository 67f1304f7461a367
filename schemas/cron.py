"""Whether five cron fields can be read: numbers and names in their ranges, lists, ranges, steps. Pure."""

from __future__ import annotations

import re

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    (0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_PART = re.compile(r"(?:\*|(?P<first>[0-9a-z]+)(?:-(?P<last>[0-9a-z]+))?)(?:/(?P<step>[0-9]+))?")


def is_cron(text: str) -> bool:
    """Minute, hour, day of month, month, day of week: ``0 3 * * *``, ``*/15 0-6 1,15 jan mon-fri``."""
    fields = text.lower().split()
    return len(fields) == len(_FIELDS) and all(map(_field, fields, _FIELDS))


def _field(text: str, kind: tuple[int, int, dict[str, int]]) -> bool:
    return all(_part(part, *kind) for part in text.split(","))


def _part(text: str, low: int, high: int, names: dict[str, int]) -> bool:
    match = _PART.fullmatch(text)
    if match is None or (match["step"] is not None and int(match["step"]) == 0):
        return False
    ends = [end for end in (match["first"], match["last"]) if end is not None]
    if not all(end.isdigit() or end in names for end in ends):
        return False
    numbers = [int(end) if end.isdigit() else names[end] for end in ends]
    return numbers == sorted(numbers) and all(low <= number <= high for number in numbers)
