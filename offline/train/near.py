"""Neighbour scores of training rows: what the near-line tier would keep with the state, for chosen items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from offline.index.neighbours import Neighbours
from offline.train.examples import Batch


class NearScores:
    """The rule of ``offline.index.neighbours``, without its cut to the best M.

    ``folds``: lists for the even and the odd users, made from the other users' sessions.
    """

    def __init__(self, folds: Sequence[Neighbours], decay: float) -> None:
        self.links: list[Any] = [lists.matrix().tocsc() for lists in folds]
        self.decay = decay

    def __call__(self, batch: Batch, columns: np.ndarray) -> Tensor:
        """float32 [n, columns]: of each target's row, the scores of the items ``columns``."""
        item = batch.item.numpy()[batch.window.numpy()] - 1
        ago = batch.row.numpy()[:, None] - np.arange(item.shape[1])
        fold = batch.user.numpy()[batch.window.numpy()] % len(self.links)
        scores = np.zeros((len(item), len(columns)), np.float32)
        for number, links in enumerate(self.links):
            row, place = np.nonzero((ago >= 0) & (item >= 0) & (fold == number)[:, None])
            weight = (self.decay ** ago[row, place]).astype(np.float32)
            held: Any = sp.csr_matrix((weight, (row, item[row, place])), shape=(len(item), links.shape[0]))
            scores += (held @ links[:, columns]).toarray().astype(np.float32)
        return torch.from_numpy(scores)
