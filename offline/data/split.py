"""Cuts a source by time into training events, held-back events and targets, and writes the data set."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from offline.data.source import Source
from schemas.errors import DataError

HELD_BACK = 0.06
"""Share of the time that is held back, at the end."""
NUM_LOCAL, MIN_WITH_LOCAL = 3, 6
MIN_BOUGHT = 5
SMALL_USERS, SMALL_ITEMS = 500, 3_000
LISTED = 20


class Split(msgspec.Struct):
    """``targets`` has user_id, at, items and local (rows of events)."""

    train: pl.DataFrame
    replay: pl.DataFrame
    targets: list[dict[str, Any]]
    cut_ms: int


def narrow(source: Source, *, small: bool) -> Source:
    """Leave out repeated event ids and rare items (and, when small, all but some users); count what is left out."""
    events = source.events.unique("event_id", keep="first", maintain_order=True).sort("user_id", "at", "event_id")
    left_out = dict(source.left_out) | {"an event_id that came before": len(source.events) - len(events)}
    cut = cut_time(events)
    if small:
        before, after = events.filter(pl.col("at") < cut), events.filter(pl.col("at") >= cut)
        both = before.select("user_id").unique().join(after.select("user_id").unique(), on="user_id").sort("user_id")
        chosen = both.sample(min(SMALL_USERS, len(both)), seed=0)
        kept = events.join(chosen, on="user_id", how="semi")
        left_out["a user outside the sample"] = len(events) - len(kept)
        events = kept
    bought = events.filter(pl.col("at") < cut).group_by("item_id").len()
    if small:
        bought = bought.sort(["len", "item_id"], descending=[True, False]).head(SMALL_ITEMS)
        rule = f"an item outside the {SMALL_ITEMS:,} most bought"
    else:
        bought = bought.filter(pl.col("len") >= MIN_BOUGHT)
        rule = f"an item bought fewer than {MIN_BOUGHT} times before the cut"
    kept = events.join(bought, on="item_id", how="semi")
    left_out[rule] = len(events) - len(kept)
    catalogue = source.catalogue.join(bought, on="item_id", how="semi").sort("item_id")
    profiles = source.profiles.join(kept.select("user_id").unique(), on="user_id", how="semi").sort("user_id")
    kept = kept.sort("user_id", "at", "event_id")
    return Source(source.name, catalogue, kept, profiles, source.rejected, left_out)


def cut_time(events: pl.DataFrame) -> int:
    """Where the held-back part begins, ms."""
    if events.is_empty():
        raise DataError("no events", where="events", mend="See the rejected rows.")
    first, last = int(events["at"].min()), int(events["at"].max())  # type: ignore[arg-type]
    return last - int((last - first) * HELD_BACK)


def split(source: Source, cut_ms: int) -> Split:
    """A user's last session after the cut is the target; the rest after the cut is replayed."""
    held = source.events.filter(pl.col("at") >= cut_ms)
    start = held.group_by("user_id", "session").agg(start=pl.col("at").min())
    last = start.sort("user_id", "start", "session").unique("user_id", keep="last", maintain_order=True)
    in_target = held.join(last, on=["user_id", "session"], how="semi")
    targets = [_target(rows) for _, rows in in_target.group_by("user_id", maintain_order=True)]
    replay = held.join(last, on=["user_id", "session"], how="anti").sort("at", "event_id")
    return Split(source.events.filter(pl.col("at") < cut_ms), replay, targets, cut_ms)


def _target(rows: pl.DataFrame) -> dict[str, Any]:
    rows = rows.unique("item_id", keep="first", maintain_order=True)
    num_local = NUM_LOCAL if len(rows) >= MIN_WITH_LOCAL else 0
    wanted = rows[num_local:]
    return {
        "user_id": wanted["user_id"][0],
        "at": wanted["at"][0],
        "items": wanted["item_id"].to_list(),
        "local_events": list(_events(rows[:num_local])),
    }


def write(folder: Path, source: Source, parts: Split, window: int) -> dict[str, Any]:
    """Write the data set whole: a kill leaves the old one or the new one. Returns ``dataset.json``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
    about = _about(source, parts)
    source.catalogue.write_parquet(draft / "catalogue.parquet")
    parts.train.write_parquet(draft / "events.parquet")
    source.profiles.write_parquet(draft / "profiles.parquet")
    newest = parts.train.group_by("user_id", maintain_order=True).tail(window).sort("at", "event_id")
    _write_lines(draft / "bootstrap.jsonl", _events(newest))
    _write_lines(draft / "replay.jsonl", _events(parts.replay))
    _write_lines(draft / "targets.jsonl", parts.targets)
    _write_lines(draft / "rejected.jsonl", source.rejected.iter_rows(named=True))
    (draft / "dataset.json").write_bytes(msgspec.json.format(msgspec.json.encode(about), indent=1))
    old = draft.with_suffix(".old")
    if folder.exists():
        folder.rename(old)
    draft.chmod(0o755)
    draft.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return about


def _about(source: Source, parts: Split) -> dict[str, Any]:
    reasons = source.rejected.group_by("reason").len().sort("len", descending=True)
    return {
        "source": source.name,
        "items": len(source.catalogue),
        "users": source.events["user_id"].n_unique(),
        "events": len(parts.train),
        "replay": len(parts.replay),
        "targets": len(parts.targets),
        "profiles": len(source.profiles),
        "cut_ms": parts.cut_ms,
        "rejected": dict(reasons.iter_rows()),
        "left_out": {rule: count for rule, count in source.left_out.items() if count},
        "first_rejected": list(source.rejected.head(LISTED).iter_rows(named=True)),
    }


def _events(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    yield from frame.select("event_id", "user_id", "item_id", "kind", "at").iter_rows(named=True)


def _write_lines(path: Path, rows: Any) -> None:
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        file.writelines(encoder.encode(row) + b"\n" for row in rows)
