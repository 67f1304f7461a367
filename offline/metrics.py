"""Recall and NDCG of lists against what users took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def quality(lists: NDArray[np.integer], targets: Sequence[NDArray[np.int64]]) -> dict[str, float]:
    """Means over all cases, those with an empty list included.

    Recall@k is hits in the first k over the number of targets; NDCG@10 is the gain with 1/log2(rank + 1) over the
    best possible gain of as many targets. ``lists`` [cases, ≥ 1] holds item numbers, best first, -1 padding.
    """
    gain = 1.0 / np.log2(np.arange(2, 12))
    rows = []
    for found, wanted in zip(lists, targets, strict=True):
        hit = np.isin(found, wanted) & (found >= 0)
        best = gain[: min(10, len(wanted))].sum()
        first = hit[:10]
        rows.append((first.sum() / len(wanted), hit[:50].sum() / len(wanted), gain[: len(first)][first].sum() / best))
    mean = np.mean(rows, axis=0) if rows else np.zeros(3)
    return {"recall_at_10": float(mean[0]), "recall_at_50": float(mean[1]), "ndcg_at_10": float(mean[2])}
