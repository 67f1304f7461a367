"""Online Retail as the project itself splits it: by time, baskets as targets."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from offline.data.online_retail import read_online_retail
from offline.data.split import cut_time, narrow, split, write
from offline.histories import hold_out, read_buckets, read_histories, read_targets
from offline.quality.protocol import Protocol
from schemas.locations import state_dir

NAME = "quality-online-retail"
SEED = 1


def online_retail(folder: Path, window: int) -> Protocol:
    """``folder`` holds ``invoices.parquet``. The last 6 % of the time are the test: a basket's items are asked for as
    it begins. Validation is the last basket before that of 1,000 users."""
    path = state_dir() / "data" / NAME
    narrowed = narrow(read_online_retail(folder / "invoices.parquet"), small=False)
    write(path, narrowed, split(narrowed, cut_time(narrowed.events)), window)
    catalogue = pl.read_parquet(path / "catalogue.parquet")
    number = {item: place for place, item in enumerate(catalogue["item_id"])}
    everything, buckets = read_histories(path, number), read_buckets(path)
    train, validation = hold_out(everything, buckets, window, SEED)
    test = read_targets(path, everything, number, buckets, window)
    labels = [tuple(part for part in row if part) for row in catalogue.select("brand", "category").iter_rows()]
    return Protocol(NAME, train, validation, test, buckets, catalogue["text"].to_list(), labels)
