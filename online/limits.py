"""What a request excludes and allows, and what is withdrawn since, as numbers of one release; it holds on all rungs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from online.graph import Array
from online.release import Release
from schemas.api import RecallRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """``exclude`` int64 [1, X] item numbers and ``allow`` int64 [1, A] category numbers, -1 padding.

    ``nothing``: categories were named and this release has none of them. It is not "all", which an ``allow``
    of padding alone would mean to the decoder. ``gone`` bool [num_items]: items that this release still recalls and
    another knows to be withdrawn; None: there are none. They are taken out of what was found, for there may be many.
    """

    exclude: Array
    allow: Array
    nothing: bool
    gone: Array | None = None

    @property
    def none(self) -> bool:
        """Everything may be returned."""
        return self is NONE

    def there(self, items: Array, scores: Array) -> tuple[Array, Array]:
        """Without the items that are withdrawn since."""
        if self.gone is None:
            return items, scores
        there = ~self.gone[items]
        return items[there], scores[there]

    def pick(self, release: Release, items: Array, scores: Array, k: int) -> tuple[Array, Array]:
        """The first ``k`` of a list that may be returned, in the list's order."""
        may = (items >= 0) & (items < release.model.num_items) & np.isfinite(scores)
        items, scores = items[may].astype(np.int64), scores[may]
        may = ~np.isin(items, self.exclude)
        if (self.allow >= 0).any():
            may &= np.isin(release.arrays["item_category"][items], self.allow)
        items, scores = self.there(items[may], scores[may])
        return items[:k], scores[:k]


def limits_of(request: RecallRequest, release: Release, gone: Array | None = None) -> Limits:
    """Unknown items and categories can't be returned anyway: they are left out."""
    if not request.exclude and not request.allow:
        return NONE if gone is None else replace(NONE, gone=gone)
    exclude = [release.item_numbers[i] for i in request.exclude if i in release.item_numbers]
    allow = [release.category_numbers[c] for c in request.allow if c in release.category_numbers]
    return Limits(_padded(exclude), _padded(allow), bool(request.allow) and not allow, gone)


def _padded(numbers: Sequence[int]) -> Array:
    """Few distinct lengths, so that onnxruntime plans its memory for few shapes."""
    length = 1
    while length < len(numbers):
        length *= 4
    padded = np.full((1, length), -1, np.int64)
    padded[0, : len(numbers)] = numbers
    return padded


NONE = Limits(_padded([]), _padded([]), nothing=False)
