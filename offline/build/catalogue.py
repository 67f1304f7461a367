"""What several stages read: the catalogue in item order, the index, the cases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from offline.build.stage import Build
from offline.histories import Buckets, Case, Histories, hold_out, read_buckets, read_histories, read_targets
from offline.index.neighbours import Neighbours
from offline.index.trie import trie_arrays

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Index:
    """What the stage ``index`` made, items by their numbers."""

    vectors: NDArray[np.float32]
    codes: Ints
    trie: dict[str, Ints]
    lists: Neighbours
    nearest: Ints
    decay: float
    repeats: bool
    num_codes: int
    catalogue: pl.DataFrame

    @property
    def number(self) -> dict[str, int]:
        """Item number by id."""
        return {item: place for place, item in enumerate(self.catalogue["item_id"])}

    @property
    def categories(self) -> list[str]:
        """Names by category number."""
        return sorted(set(self.catalogue["category"]))

    @property
    def category(self) -> Ints:
        """Category number of each item."""
        place = {name: number for number, name in enumerate(self.categories)}
        return np.array([place[name] for name in self.catalogue["category"]], np.int64)


def read_index(build: Build) -> Index:
    """The index of this build."""
    folder = build.folder("index")
    arrays = {
        name: np.load(folder / f"{name}.npy") for name in ("order", "vectors", "codes", "items", "scores", "nearest")
    }
    result = build.result("index")
    return Index(
        arrays["vectors"],
        arrays["codes"],
        trie_arrays(arrays["codes"]),
        Neighbours(arrays["items"], arrays["scores"]),
        arrays["nearest"],
        result["neighbours"]["decay"],
        result["neighbours"]["repeats"],
        result["num_codes"],
        pl.read_parquet(build.data / "catalogue.parquet")[arrays["order"]],
    )


@dataclass(frozen=True)
class Data:
    """Histories without the validation sessions, and the cases to answer."""

    train: Histories
    validation: list[Case]
    targets: list[Case]
    buckets: Buckets


def read_data(build: Build, number: dict[str, int], *, targets: bool = False) -> Data:
    """The data set, items by their numbers; validation is the same in every stage."""
    window = build.plan.model.window
    everything, buckets = read_histories(build.data, number), read_buckets(build.data)
    train, validation = hold_out(everything, buckets, window, build.plan.model.seed)
    held_back = read_targets(build.data, everything, number, buckets, window) if targets else []
    return Data(train, validation, held_back, buckets)


def save(folder: Path, **arrays: NDArray[np.generic]) -> None:
    """``folder/NAME.npy`` each."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
