"""How items are linked: what follows what, what is taken near what, and whose words agree. Each a sparse [N, N]."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from offline.histories import Histories

Ints = NDArray[np.int64]
Sparse = Any
"""A matrix of scipy.sparse, which has no types."""
COUNTING_DECAY = 0.98
SHRINK = 10.0
REACH = 10
"""Events further apart do not count as together."""
BACK = 0.6
"""Weight of what came before, where what came after has 1."""
POPULARITY = 0.3
KEPT = 200
"""Links of an item that are looked at; the lists are far shorter."""
COMMON = 0.1
"""A word of more than this share of the items links nothing."""
BLOCK = 2_000


def transitions(histories: Histories, num_items: int, window: int) -> Sparse:
    """How often j was taken in a session whose window held i, per time that i was in a window."""
    begins = np.flatnonzero(np.r_[True, np.diff(histories.session) != 0])
    ends = np.r_[begins[1:], len(histories.item)]
    user_begin = histories.start[:-1][histories.user[begins]]
    before = np.minimum(begins - user_begin, window)
    session = np.repeat(np.arange(len(begins)), before)
    ago = np.arange(before.sum()) - np.repeat(np.cumsum(before) - before, before)
    place = np.repeat(begins, before) - 1 - ago
    held: Sparse = sp.csr_matrix(
        ((COUNTING_DECAY**ago).astype(np.float32), (session, histories.item[place])), shape=(len(begins), num_items)
    )
    of = np.repeat(np.arange(len(begins)), ends - begins)
    taken: Sparse = sp.csr_matrix((np.ones(len(of), np.float32), (of, histories.item)), shape=held.shape)
    taken.data[:] = 1.0
    scale: Sparse = sp.diags(1.0 / (np.asarray(held.sum(0)).ravel() + SHRINK))
    follow = (scale @ (held.T.tocsr() @ taken)).tocsr().astype(np.float32)
    return largest(follow, KEPT)


def together(histories: Histories, num_items: int, *, back: float = BACK, popularity: float = POPULARITY) -> Sparse:
    """Pairs within 10 events of a user weigh 1/√distance, those against the order ``back`` of it; a row is divided
    by (popularity of its item)^``popularity``. No item is linked to itself."""
    item, user = histories.item, histories.user
    total: Any = sp.csr_matrix((num_items, num_items), dtype=np.float32)
    for ago in range(1, REACH + 1):
        same = user[ago:] == user[:-ago]
        pairs = (item[:-ago][same], item[ago:][same])
        weight = np.full(len(pairs[0]), ago**-0.5, np.float32)
        total = total + sp.csr_matrix((weight, pairs), shape=total.shape)
    total = (total + back * total.T).tocsr()
    return (popularity_scale(histories, num_items, popularity) @ without_own(total)).tocsr().astype(np.float32)


def popularity_scale(histories: Histories, num_items: int, power: float) -> Sparse:
    """Diagonal: times taken (at least 1) to the power of -``power``."""
    return sp.diags(np.maximum(np.bincount(histories.item, minlength=num_items), 1).astype(np.float32) ** -power)


def content_links(words: Sparse, keep: int) -> Sparse:
    """The ``keep`` largest cosines of each item's words ``words`` [N, V] (rows of length one); itself left out.

    A word that more than a tenth of the items have links nothing: it would cost most and say least.
    """
    share = np.asarray((words > 0).mean(axis=0)).ravel()
    rare = words[:, share <= max(COMMON, 2 / words.shape[0])].tocsr()
    parts = []
    for begin in range(0, rare.shape[0], BLOCK):
        block = (rare[begin : begin + BLOCK] @ rare.T).tocsr()
        own = sp.csr_matrix(
            (
                np.asarray(block[np.arange(block.shape[0]), begin + np.arange(block.shape[0])]).ravel(),
                (np.arange(block.shape[0]), begin + np.arange(block.shape[0])),
            ),
            shape=block.shape,
        )
        block = block - own
        block.eliminate_zeros()
        parts.append(largest(block.tocsr(), keep))
    return sp.vstack(parts).tocsr().astype(np.float32)


def without_own(matrix: Sparse) -> Sparse:
    """The same with an empty diagonal."""
    out = (matrix - sp.diags(matrix.diagonal())).tocsr()
    out.eliminate_zeros()
    return out


def largest(matrix: Sparse, keep: int) -> Sparse:
    """The ``keep`` largest of each row, in no order, and the diagonal."""
    rows = []
    for row, (begin, end) in enumerate(itertools.pairwise(matrix.indptr)):
        if end - begin <= keep:
            rows.append(np.arange(begin, end))
            continue
        best = np.argpartition(-matrix.data[begin:end], keep)[:keep]
        own = np.flatnonzero(matrix.indices[begin:end] == row)
        rows.append(begin + np.union1d(best, own))
    kept = np.concatenate(rows)
    start = np.r_[0, np.cumsum([len(row) for row in rows])]
    return sp.csr_matrix((matrix.data[kept], matrix.indices[kept], start), shape=matrix.shape)
