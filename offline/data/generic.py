"""A shop's own files, CSV or Parquet.

Catalogue: ``item_id``, ``title``; and, where there are, ``text`` (what is encoded; the title by default),
``category`` and ``brand``.
Events: ``user_id``, ``item_id``, ``kind`` (impression, click, cart, purchase), ``at`` (milliseconds since 1970, or a
date and time with its offset, as in 2026-01-31T12:00:00Z); and, where there is, ``event_id`` (else made from the row).
Profiles: ``user_id``, ``bucket``.
Rows are numbered from 1, the header not counted. A bad row is reported with its number and reason; every other row
is used.
"""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl

from offline.data.source import CONTROL, EVENT_COLUMNS, Source, event_rules, id_rules, no_rejects, set_aside
from schemas.errors import DataError

SESSION_GAP_MS = 30 * 60 * 1000
"""A pause that ends a visit."""


def read_files(catalogue: Path, events: Path, profiles: Path | None = None) -> Source:
    """Read and check the two or three files.

    Raises:
        DataError: a file can't be read, lacks a column, or has no good row.
    """
    items, bad_items = read_catalogue(catalogue)
    happened, bad_events = _events(events, items)
    people, bad_people = _profiles(profiles)
    for path, frame in ((catalogue, items), (events, happened)):
        if frame.is_empty():
            raise DataError("no good row", where=str(path), mend="See `./beforehand data --help` for the columns.")
    return Source("files", items, happened, people, pl.concat([bad_items, bad_events, bad_people]))


def read_catalogue(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The good rows of a catalogue, and the rejected ones.

    Raises:
        DataError: the file can't be read, or lacks a column.
    """
    frame, torn = _read(path, ("item_id", "title"), ("text", "category", "brand"))
    frame = frame.with_columns(again=~pl.col("item_id").is_first_distinct())
    rules = [*id_rules("item_id"), (pl.col("again"), "an item_id that came before", "item_id")]
    good, bad = set_aside(frame, path.name, rules)
    title = pl.col("title").fill_null("").str.replace_all(CONTROL, " ")
    text = pl.col("text").fill_null("")
    return good.select(
        "item_id",
        title=title,
        text=pl.when(text == "").then(title).otherwise(text),
        category=pl.col("category").fill_null(""),
        brand=pl.col("brand").fill_null(""),
    ), pl.concat([torn, bad])


def _events(path: Path, items: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    frame, torn = _read(path, ("user_id", "item_id", "kind", "at"), ("event_id",))
    told = pl.col("at").str.to_datetime("%+", time_unit="ms", time_zone="UTC", strict=False).dt.epoch("ms")
    made = pl.concat_str("user_id", "at", "item_id", "kind", separator="-", ignore_nulls=True).hash(seed=0)
    frame = frame.with_columns(
        at_text=pl.col("at"),
        at=pl.coalesce(pl.col("at").cast(pl.Int64, strict=False), told),
        event_id=pl.coalesce(pl.col("event_id"), made.cast(pl.String)),
        known=pl.col("item_id").is_in(items["item_id"].implode()),
    )
    rules = [
        *event_rules(),
        *id_rules("event_id"),
        (~pl.col("known"), "an item that is not in the catalogue", "item_id"),
    ]
    good, bad = set_aside(frame, path.name, rules)
    good = good.sort("user_id", "at", "event_id")
    pause = (pl.col("at").diff().fill_null(0).over("user_id") > SESSION_GAP_MS).cum_sum().over("user_id")
    return good.with_columns(session=pause.cast(pl.String)).select(EVENT_COLUMNS), pl.concat([torn, bad])


def _profiles(path: Path | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    if path is None:
        return pl.DataFrame(schema={"user_id": pl.String, "bucket": pl.String}), no_rejects()
    frame, torn = _read(path, ("user_id", "bucket"), ())
    frame = frame.with_columns(again=~pl.col("user_id").is_first_distinct())
    rules = [*id_rules("user_id", "bucket"), (pl.col("again"), "a user_id that came before", "user_id")]
    good, bad = set_aside(frame, path.name, rules)
    return good.select("user_id", "bucket"), pl.concat([torn, bad])


def _read(path: Path, needed: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All columns as text, with ``row``; and the lines that are no rows at all."""
    try:
        frame, torn = _read_csv(path) if path.suffix == ".csv" else (_read_parquet(path), no_rejects())
    except (OSError, csv.Error, pl.exceptions.PolarsError) as error:
        raise DataError(f"can't be read: {error}", where=str(path), mend="Give a .csv or .parquet file.") from None
    lacking = [name for name in needed if name not in frame.columns]
    if lacking:
        raise DataError(
            f"no column {', '.join(lacking)}",
            where=str(path),
            value=[name for name in frame.columns if name != "row"],
            mend="See `./beforehand data --help` for the columns.",
        )
    missing = [pl.lit(None, pl.String).alias(name) for name in wanted if name not in frame.columns]
    return frame.with_columns(missing).select("row", *needed, *wanted), torn


def _read_parquet(path: Path) -> pl.DataFrame:
    frame = pl.read_parquet(path)
    times = [
        pl.col(name).dt.epoch("ms").cast(pl.String)
        for name, kind in frame.schema.items()
        if isinstance(kind, pl.Datetime) and kind.time_zone is not None
    ]
    return frame.with_columns(times).cast(pl.String).with_row_index("row", offset=1)


def _read_csv(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    csv.field_size_limit(1 << 24)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        rows = list(enumerate(lines, 1))
    whole = [(number, *cells) for number, cells in rows if len(cells) == len(header)]
    torn = [
        {"file": path.name, "row": n, "reason": f"{len(cells)} fields where the header has {len(header)}", "value": ""}
        for n, cells in rows
        if cells and len(cells) != len(header)
    ]
    schema = {"row": pl.Int64} | dict.fromkeys(header, pl.String)
    frame = pl.DataFrame(whole, schema=schema, orient="row")
    return frame, pl.DataFrame(torn, schema=no_rejects().schema)
