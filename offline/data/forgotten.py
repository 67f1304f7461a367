"""Users who asked to be forgotten: nothing they did up to then reaches training, lists or a release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl

from offline.data.source import Source
from schemas.errors import DataError
from schemas.event import Forget

RULE = "an event of a user who asked to be forgotten"


def read_forgotten(path: Path) -> dict[str, int]:
    """The newest request of each user, ms, from what ``./beforehand forget --list`` prints: a JSON object a line with
    ``user_id`` and ``at``. The line that only counts them (``--json``) is passed over.

    Raises:
        DataError: naming the line. A list that can't be read whole is not used at all: it would let users through.
    """
    found: dict[str, int] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"can't be read: {error.strerror}", where=str(path), mend="Give --forgotten a file.") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith(b'{"users":'):
            continue
        try:
            one = msgspec.json.decode(line, type=Forget)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(
                f"not a request to forget: {error}",
                where=f"{path} line {number}",
                value=line,
                mend="Write it with `./beforehand forget --list`.",
            ) from None
        found[one.user_id] = max(one.at, found.get(one.user_id, one.at))
    return found


def forget(source: Source, forgotten: dict[str, int]) -> Source:
    """Without what the users did up to their request, and without the profiles of those who did nothing since."""
    until = pl.DataFrame(
        {"user_id": list(forgotten), "until": list(forgotten.values())},
        schema={"user_id": pl.String, "until": pl.Int64},
    )
    marked = source.events.join(until, on="user_id", how="left", maintain_order="left")
    events = marked.filter(pl.col("until").is_null() | (pl.col("at") > pl.col("until"))).drop("until")
    gone = until.join(events.select("user_id").unique(), on="user_id", how="anti")
    return replace(
        source,
        events=events,
        profiles=source.profiles.join(gone, on="user_id", how="anti", maintain_order="left"),
        left_out=source.left_out | {RULE: len(source.events) - len(events)},
    )
