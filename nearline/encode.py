"""Windows into the intent encoder's inputs, and its rows out again. Shapes and names as in ``schemas.graphs``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearline.release import Array, Release
from schemas.names import KIND_NUMBER
from schemas.window import WindowEvent

MAX_BATCH = 32
"""Larger batches encode no more windows per CPU-second, and make the first user of a batch wait for the last."""

KINDS: dict[str, int] = {kind.value: number for kind, number in KIND_NUMBER.items()}
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class History:
    """The events of a window whose items the release knows, newest first."""

    items: list[int]  # item numbers
    kinds: list[int]
    times: list[int]  # ms
    num_unknown: int = 0  # events left out, because the release has no such item


def history(events: Sequence[WindowEvent], item_number: Mapping[str, int], window: int) -> History:
    """The newest ``window`` events of known items.

    Raises:
        KeyError: a kind that is none of ``schemas.names.Kind``.
    """
    kinds = [KINDS[event.kind] for event in events]
    known = [
        (number, kind, event.at)
        for event, kind in zip(events, kinds, strict=True)
        if (number := item_number.get(event.item_id)) is not None
    ]
    kept = known[:window]
    return History(
        [number for number, _, _ in kept],
        [kind for _, kind, _ in kept],
        [at for _, _, at in kept],
        len(events) - len(known),
    )


def graph_inputs(histories: Sequence[History], length: int) -> dict[str, Array]:
    """``item``, ``kind`` and ``gap`` [B, length]: oldest first, padded on the left with 0.

    No history may be longer than ``length``.
    """
    shape = (len(histories), length)
    item, kind = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    at = np.zeros(shape, np.float64)
    for row, one in enumerate(histories):
        if one.items:
            start = length - len(one.items)
            item[row, start:] = one.items[::-1]
            item[row, start:] += 1
            kind[row, start:] = one.kinds[::-1]
            at[row, start:] = one.times[::-1]
    return {"item": item, "kind": kind, "gap": _gaps(at, item > 0)}


def _gaps(at: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.float32]:
    """``schemas.graphs.gap_feature`` of every event but the first of its row."""
    gap = np.zeros(at.shape, np.float32)
    hours = np.log1p(np.maximum(np.diff(at, axis=1), 0.0) / _HOUR_MS)
    gap[:, 1:] = np.where(present[:, :-1], hours, 0.0)
    return gap


class IntentEncoder:
    """The intent encoder of one release."""

    def __init__(self, release: Release) -> None:
        self._session = release.encoder
        self._item_in = release.arrays["item_in"]
        self._rows = release.model.state_rows
        self._width = release.model.width
        shape: Any = self._session.get_inputs()[0].shape
        # An exported graph with a fixed window takes no shorter one.
        self._fixed_length = shape[1] if isinstance(shape[1], int) else None

    def rows(self, histories: Sequence[History], max_batch: int = MAX_BATCH) -> NDArray[np.float32]:
        """The last R rows of each history [B, R, d]; zeros for a history without events.

        Histories of like length share a batch, so that little padding is computed.
        """
        found = np.zeros((len(histories), self._rows, self._width), np.float32)
        order = sorted((n for n, one in enumerate(histories) if one.items), key=lambda n: len(histories[n].items))
        for start in range(0, len(order), max_batch):
            places = order[start : start + max_batch]
            longest = len(histories[places[-1]].items)
            length = self._fixed_length or max(longest, self._rows)
            inputs = graph_inputs([histories[n] for n in places], length)
            hidden = self._session.run(None, inputs | {"item_in": self._item_in})[0]
            found[places] = hidden[:, -self._rows :, :]
        return found


def stored_rows(rows: NDArray[np.float32]) -> tuple[list[bytes], list[int]]:
    """Rows [B, R, d] as the store holds them (float16, little-endian), and which of the B hold NaN or infinity."""
    with np.errstate(over="ignore"):  # what overflows becomes infinity and is refused
        half = rows.astype("<f2")
    finite = np.isfinite(half).all(axis=(1, 2))
    return [row.tobytes() for row in half], np.flatnonzero(~finite).tolist()
