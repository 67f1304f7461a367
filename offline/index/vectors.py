"""Content vectors of items: what is bought together, beside what the texts say."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from offline.histories import Histories
from schemas.errors import DataError

Floats = NDArray[np.float32]
REACH = 8
"""Events further apart do not count as together."""
POPULARITY = 0.3
TEXT_WEIGHT = 0.8


def item_vectors(histories: Histories, text: Floats, width: int, seed: int) -> Floats:
    """[N, ≤ width]: two thirds co-occurrence, one third text; an item that nobody took has the text part only.

    Raises:
        DataError: a text vector is not finite, naming the row.
    """
    check_finite(text, "text vectors")
    together = cooccurrence(histories, len(text))
    bought = unit(_factors(together, 2 * width // 3, seed))
    bought[np.asarray(together.sum(1)).ravel() == 0] = 0
    said = unit(_factors(text - text.mean(0), width - 2 * width // 3, seed))
    return np.concatenate([bought, TEXT_WEIGHT * said], axis=1).astype(np.float32)


def check_finite(vectors: Floats, where: str) -> None:
    """Raises ``DataError`` naming the first row with a NaN or an infinity."""
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise DataError(
            f"{len(bad)} rows are not finite", where=f"{where} row {bad[0]}", mend="Encode that item's text again."
        )


def cooccurrence(histories: Histories, num_items: int) -> Any:
    """Symmetric [N, N]: pairs within 8 events of a user weigh 1/√distance; divided by (popularity of both)^.3.

    The diagonal is each row's largest entry, so that the matrix is close to a similarity.
    """
    item, user = histories.item, histories.user
    total: Any = sp.csr_matrix((num_items, num_items), dtype=np.float32)
    for ago in range(1, REACH + 1):
        same = user[ago:] == user[:-ago]
        pairs = (item[:-ago][same], item[ago:][same])
        weight = np.full(len(pairs[0]), ago**-0.5, np.float32)
        total = total + sp.csr_matrix((weight, pairs), shape=total.shape)
    total = total + total.T
    total.setdiag(0)
    total.eliminate_zeros()
    scale = sp.diags(np.maximum(np.bincount(item, minlength=num_items), 1).astype(np.float32) ** -POPULARITY)
    total = (scale @ total @ scale).tocsr()
    return (total + sp.diags(np.asarray(total.max(axis=1).todense()).ravel())).tocsr().astype(np.float32)


def unit(rows: Floats) -> Floats:
    """Rows of length one; a row of zeros stays."""
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def _factors(matrix: Any, width: int, seed: int) -> Floats:
    width = max(1, min(width, min(matrix.shape) - 1))
    svd: Any = randomized_svd
    left, strength, _ = svd(matrix, width, n_oversamples=8, n_iter=2, random_state=seed)
    # The sign of a factor is arbitrary and may differ between libraries: fix it.
    sign = np.sign(left[np.abs(left).argmax(axis=0), np.arange(width)])
    return (left * sign * np.sqrt(strength)).astype(np.float32)
