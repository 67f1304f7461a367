"""Content vectors of items: what is bought together, beside what the texts say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from offline.histories import Histories
from offline.index.links import POPULARITY, popularity_scale, together
from schemas.errors import DataError

Floats = NDArray[np.float32]
CONTENT_WEIGHT = 0.8


def item_vectors(histories: Histories, content: Sequence[Any], width: int, seed: int) -> Floats:
    """[N, ≤ width]: half what is taken together, half the content, whose parts (dense or sparse, [N, …]) share it.

    Every part is cut to its largest factors and its rows to length one; content weighs 0.8. An item that nobody took
    has zeros in the first half.

    Raises:
        DataError: a content vector is not finite, naming the row.
    """
    num_items = content[0].shape[0]
    near = together(histories, num_items, back=1.0) @ popularity_scale(histories, num_items, POPULARITY)
    # With its largest link on the diagonal the matrix is close to a similarity.
    near = (near + sp.diags(np.asarray(near.max(axis=1).todense()).ravel())).tocsr().astype(np.float32)
    bought = unit(_factors(near, width // 2, seed, 0.5))
    bought[near.diagonal() == 0] = 0
    said = [unit(_factors(_centred(part), width // (2 * len(content)), seed, 1.0)) for part in content]
    return np.concatenate([bought, *(CONTENT_WEIGHT * part for part in said)], axis=1).astype(np.float32)


def _centred(part: Any) -> Any:
    if sp.issparse(part):
        return part
    check_finite(part, "text vectors")
    return part - part.mean(0)


def check_finite(vectors: Floats, where: str) -> None:
    """Raises ``DataError`` naming the first row with a NaN or an infinity."""
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise DataError(
            f"{len(bad)} rows are not finite", where=f"{where} row {bad[0]}", mend="Encode that item's text again."
        )


def unit(rows: Floats) -> Floats:
    """Rows of length one; a row of zeros stays."""
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def _factors(matrix: Any, width: int, seed: int, power: float) -> Floats:
    """Left singular vectors times their strength to ``power``."""
    width = max(1, min(width, min(matrix.shape) - 1))
    svd: Any = randomized_svd
    left, strength, _ = svd(matrix, width, n_oversamples=8, n_iter=2, random_state=seed)
    # The sign of a factor is arbitrary and may differ between libraries: fix it.
    sign = np.sign(left[np.abs(left).argmax(axis=0), np.arange(width)])
    return (left * sign * strength**power).astype(np.float32)
