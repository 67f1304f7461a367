"""Data sets as the papers use them: every user's last item is the test, the one before it validation.

``beauty`` and ``scientific`` are folders with ``items.parquet`` and ``sequences.parquet``; they have an order but no
times, so events are taken to be a week apart, each a session of its own, and the clock says nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from offline.histories import EVERYBODY, Buckets, Case, Histories
from schemas.errors import DataError
from schemas.names import Kind

Ints = NDArray[np.int64]
WEEK_MS = 7 * 86_400_000
BEGIN_MS = 2_000 * WEEK_MS
SHORTEST = 3
"""A user with fewer items has nothing left to train on."""
TEXTS = ("text", "title", "categories")
LABELS = ("brand",)


@dataclass(frozen=True)
class Protocol:
    """One data set: what may be trained on, and the cases of either split. Items are numbers."""

    name: str
    train: Histories
    validation: list[Case]
    test: list[Case]
    buckets: Buckets
    texts: list[str]
    labels: list[tuple[str, ...]]

    @property
    def num_items(self) -> int:
        """Of the whole catalogue."""
        return len(self.texts)

    @property
    def bought(self) -> Ints:
        """Training events of each item."""
        return np.bincount(self.train.item, minlength=self.num_items)

    def renumbered(self, order: Ints) -> Protocol:
        """The same with items numbered by their place in ``order``."""
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))

        def moved(case: Case) -> Case:
            local = [(int(number[item]), kind, at) for item, kind, at in case.local]
            return dataclasses.replace(case, window=number[case.window], target=number[case.target], local=local)

        return dataclasses.replace(
            self,
            train=dataclasses.replace(self.train, item=number[self.train.item]),
            validation=[moved(case) for case in self.validation],
            test=[moved(case) for case in self.test],
            texts=[self.texts[row] for row in order],
            labels=[self.labels[row] for row in order],
        )


def leave_one_out(folder: Path, window: int) -> Protocol:
    """Read a folder of ``items.parquet`` (item_id and any of text, title, categories, brand, attributes) and
    ``sequences.parquet`` (user_id, position, item_id).

    Raises:
        DataError: a file is missing, or a sequence names an item that the catalogue has not.
    """
    items, sequences = _table(folder / "items.parquet"), _table(folder / "sequences.parquet")
    items = items.sort("item_id")
    number = {item: place for place, item in enumerate(items["item_id"])}
    unknown = sequences.filter(~pl.col("item_id").is_in(list(number)))
    if len(unknown):
        raise DataError(
            "an item that the catalogue has not",
            where=f"{folder / 'sequences.parquet'} item_id",
            value=unknown["item_id"][0],
            mend="Add it to items.parquet, or leave its events out.",
        )
    taken = sequences.sort("user_id", "position").group_by("user_id", maintain_order=True).agg("item_id")
    users = [str(user) for user in taken["user_id"]]
    lists = [np.array([number[item] for item in row], np.int64) for row in taken["item_id"].to_list()]
    kept = [place for place, row in enumerate(lists) if len(row) >= SHORTEST]
    users, lists = [users[place] for place in kept], [lists[place] for place in kept]
    some = np.random.default_rng(0).permutation(len(lists))  # so that the first ones are any
    return Protocol(
        folder.name,
        _histories(users, [row[:-2] for row in lists]),
        [_case(users[place], lists[place][:-1], window) for place in some],
        [_case(user, row, window) for user, row in zip(users, lists, strict=True)],
        Buckets([EVERYBODY], {}),
        *_content(items),
    )


def _table(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise DataError("no such file", where=str(path), mend="Give the folder of the data set with --folder.")
    return pl.read_parquet(path).with_columns(pl.col("item_id").cast(pl.String))


def _content(items: pl.DataFrame) -> tuple[list[str], list[tuple[str, ...]]]:
    """Texts and labels of each item; what a data set has not is empty."""
    texts = [" ".join(str(part or "") for part in row) for row in items.select(_there(items, TEXTS)).iter_rows()]
    labels = [tuple(str(part) for part in row if part) for row in items.select(_there(items, LABELS)).iter_rows()]
    texts, labels = texts or [""] * len(items), labels or [()] * len(items)
    if "attributes" in items.columns:
        more = items["attributes"].to_list()
        labels = [(*own, *(f"#{value}" for value in values or [])) for own, values in zip(labels, more, strict=True)]
    return texts, labels


def _there(items: pl.DataFrame, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name in items.columns]


def _histories(users: list[str], lists: list[Ints]) -> Histories:
    lengths = np.array([len(row) for row in lists], np.int64)
    item = np.concatenate(lists)
    at = BEGIN_MS + WEEK_MS * (np.arange(len(item)) - np.repeat(np.cumsum(lengths) - lengths, lengths))
    kinds = np.full(len(item), Kind.PURCHASE.number, np.int64)
    return Histories(users, np.r_[0, np.cumsum(lengths)], item, kinds, at, np.arange(len(item)))


def _case(user: str, row: Ints, window: int) -> Case:
    """The last of ``row`` is asked for."""
    seen = row[:-1][-window:]
    times = BEGIN_MS + WEEK_MS * np.arange(len(row) - 1 - len(seen), len(row) - 1)
    at = BEGIN_MS + WEEK_MS * (len(row) - 1)
    return Case(user, 0, at, seen, np.full(len(seen), Kind.PURCHASE.number, np.int64), times, row[-1:], [])
