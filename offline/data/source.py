"""What every source is read into, and how bad rows are set aside."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from schemas.event import MAX_AT_MS, MAX_ID_CHARACTERS, MIN_AT_MS
from schemas.names import Kind

CATALOGUE_COLUMNS = ("item_id", "title", "text", "category", "brand")
EVENT_COLUMNS = ("event_id", "user_id", "item_id", "kind", "at", "session")
REJECTED_COLUMNS = ("file", "row", "reason", "value")
CONTROL = r"[\x00-\x1f\x7f]"


@dataclass
class Source:
    """A source, read and checked.

    ``events.session`` groups a user's events that belong together (a basket, an invoice, a visit).
    ``rejected`` has a row for each bad row; ``left_out`` counts good rows that a rule leaves out, by rule.
    """

    name: str
    catalogue: pl.DataFrame
    events: pl.DataFrame
    profiles: pl.DataFrame
    rejected: pl.DataFrame
    left_out: dict[str, int] = field(default_factory=dict)


def no_rejects() -> pl.DataFrame:
    """An empty ``rejected``."""
    return pl.DataFrame(schema={"file": pl.String, "row": pl.Int64, "reason": pl.String, "value": pl.String})


def set_aside(
    frame: pl.DataFrame, file: str, rules: list[tuple[pl.Expr, str, str]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split ``frame`` (with a column ``row``) into good rows and rejects.

    A rule is (what is wrong, the reason, the column whose value is shown); the first that holds gives the reason.
    """
    reason = pl.coalesce([pl.when(wrong.fill_null(True)).then(pl.lit(text)) for wrong, text, _ in rules])
    value = pl.coalesce(
        [
            pl.when(wrong.fill_null(True)).then(pl.col(column).cast(pl.String).str.slice(0, 80).fill_null(""))
            for wrong, _, column in rules
        ]
    )
    judged = frame.with_columns(reason=reason, value=value, file=pl.lit(file))
    bad = judged.filter(pl.col("reason").is_not_null()).select(pl.col("row").cast(pl.Int64), "file", "reason", "value")
    good = judged.filter(pl.col("reason").is_null()).drop("reason", "value", "file")
    return good, bad.select(REJECTED_COLUMNS)


def id_rules(*columns: str) -> list[tuple[pl.Expr, str, str]]:
    """Rules of ids: 1 to 256 bytes, valid UTF-8, no control characters."""
    rules: list[tuple[pl.Expr, str, str]] = []
    for name in columns:
        text = pl.col(name)
        rules += [
            (text.is_null() | (text == ""), f"no {name}", name),
            (text.str.len_chars() > MAX_ID_CHARACTERS, f"{name} is longer than {MAX_ID_CHARACTERS} characters", name),
            (text.str.contains("\ufffd", literal=True), f"{name} is not UTF-8", name),
            (text.str.contains(CONTROL), f"{name} has control characters", name),
        ]
    return rules


def event_rules(at_text: str = "at_text") -> list[tuple[pl.Expr, str, str]]:
    """Rules of an event whose ``at`` is parsed from the column ``at_text``; a wrong unit is named."""
    at = pl.col("at")
    between = [at.is_between(MIN_AT_MS // unit, MAX_AT_MS // unit) for unit in (1000, 1)]
    return [
        *id_rules("user_id", "item_id"),
        (~pl.col("kind").is_in([str(kind) for kind in Kind]), f"kind is not one of {', '.join(Kind)}", "kind"),
        (
            at.is_null(),
            "at is no number of ms and no date and time with offset (2026-01-31T12:00:00Z)",
            at_text,
        ),
        (between[0], "at looks like seconds: send milliseconds since 1970", at_text),
        (at > MAX_AT_MS, "at is past the year 2100, or in microseconds: send milliseconds since 1970", at_text),
        (~between[1], "at is before the year 2000", at_text),
    ]
