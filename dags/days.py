"""Which days a backfill builds. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from schemas.errors import DataError


class Days(msgspec.Struct, frozen=True):
    """Days in UTC, newest first, as YYYYMMDD."""

    chosen: list[str]
    left_out: list[str]  # older than the newest ``most``


def choose_days(begin: str | None, end: str | None, most: int, now: datetime | None = None) -> Days:
    """The newest ``most`` of the days that begin inside [begin, end).

    A day that has not begun at ``now``, where that is given, has no data and is left out.
    Days are UTC days: a change to or from summer time leaves no gap and no overlap, whatever offset the range has.

    Raises:
        DataError: a moment without an offset, an empty range, or no range.
    """
    first, last = _moment(begin, "begin"), _moment(end, "end")
    last = min(last, now) if now else last
    day = first.replace(hour=0, minute=0, second=0, microsecond=0)
    if day < first:
        day += timedelta(days=1)
    found: list[str] = []
    while day < last:
        found.append(day.strftime("%Y%m%d"))
        day += timedelta(days=1)
    if not found:
        raise DataError(
            "no day begins in the range, or none that has begun yet",
            where="param end",
            value=f"{begin} … {end}",
            mend="Let end be a later day, and begin no day to come.",
        )
    found.reverse()
    return Days(found[:most], found[most:])


def _moment(text: str | None, name: str) -> datetime:
    where = f"param {name}"
    if not text:
        raise DataError("no date and time", where=where, mend="Write one, as in 2026-03-01T00:00:00Z.")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise DataError(
            "not a date and time", where=where, value=text, mend="Write it as in 2026-03-01T00:00:00Z."
        ) from None
    if moment.tzinfo is None:
        raise DataError(
            "no offset: it is another moment in each time zone",
            where=where,
            value=text,
            mend=f"Add the offset, as in {text}Z for UTC or {text}+01:00.",
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise DataError("no such moment in UTC", where=where, value=text, mend="Take a nearer one.") from None
