"""A residual-quantised variational autoencoder (RQ-VAE; Lee et al. 2022, for semantic IDs Rajput et al. 2023).

An autoencoder squeezes a vector into a latent; each level's codebook quantises what the levels before it left over.
The codebooks follow the latents by moving averages (EMA), the gradient passes the quantiser straight through, and a
code that few latents choose begins anew at one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from schemas.errors import DataError

Floats = NDArray[np.float32]
HIDDEN, LATENT = 256, 64
EPOCHS, MIN_STEPS, MAX_STEPS = 40, 600, 4_000
WARM_UP = 0.25
"""Share of the steps before there are codes: k-means needs latents that say something."""
BATCH = 1_024
RATE = 1e-3
DECAY = 0.95
COMMITMENT = 0.25
DEAD = 0.1
"""A code whose average count per batch falls below this share of an even one begins anew."""


@dataclass(frozen=True)
class Encoder:
    """Vectors to latents, in numpy: ``relu(x / scale @ w1 + b1) @ w2 + b2``."""

    scale: Floats
    w1: Floats
    b1: Floats
    w2: Floats
    b2: Floats

    def __call__(self, vectors: Floats) -> Floats:
        """[n, v] → [n, w]."""
        hidden = np.maximum(vectors / self.scale @ self.w1 + self.b1, 0)
        return np.ascontiguousarray(hidden @ self.w2 + self.b2, np.float32)

    def arrays(self) -> dict[str, Floats]:
        """By name, to be saved."""
        return dict(vars(self))


class Codes(nn.Module):
    """The codebooks [L, K, w] with their moving averages."""

    def __init__(self, latents: Tensor, levels: int, num_codes: int, seed: int) -> None:
        super().__init__()
        self.tables = torch.zeros(levels, num_codes, latents.shape[1])
        rest = latents
        for level in range(levels):
            self.tables[level] = torch.from_numpy(_kmeans(rest.numpy(), num_codes, seed + level))
            rest = rest - self.tables[level][_nearest(rest, self.tables[level])]
        even = BATCH / num_codes
        self.counts = torch.full((levels, num_codes), even)
        self.sums = self.tables * even

    def forward(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Quantised latents, the gradient passed straight through, and the commitment loss; moves the averages."""
        rest, total, loss = latents, torch.zeros_like(latents), latents.new_zeros(())
        for level, table in enumerate(self.tables):
            chosen = _nearest(rest.detach(), table)
            if self.training:
                self._follow(level, rest.detach(), chosen)
            code = table[chosen]
            loss = loss + functional.mse_loss(rest, code)
            total, rest = total + code, rest - code
        return latents + (total - latents).detach(), COMMITMENT * loss

    def _follow(self, level: int, rest: Tensor, chosen: Tensor) -> None:
        hot = functional.one_hot(chosen, self.counts.shape[1]).to(rest.dtype)
        counts, sums = self.counts[level], self.sums[level]
        counts.mul_(DECAY).add_(hot.sum(0), alpha=1 - DECAY)
        sums.mul_(DECAY).add_(hot.T @ rest, alpha=1 - DECAY)
        even = len(rest) / len(counts)
        dead = (counts < DEAD * even).nonzero().ravel()
        if len(dead):
            sums[dead] = rest[torch.randint(len(rest), (len(dead),))] * even
            counts[dead] = even
        self.tables[level] = sums / counts.unsqueeze(1)


def train_rqvae(vectors: Floats, levels: int, num_codes: int, seed: int) -> tuple[Encoder, Floats]:
    """The encoder and the codebooks [L, K, w]; equal inputs give equal results.

    Raises:
        DataError: the loss is no longer a number.
    """
    torch.manual_seed(seed)
    scale = np.full(1, max(float(vectors.std()), 1e-9), np.float32)
    data = torch.from_numpy(np.ascontiguousarray(vectors / scale, np.float32))
    width = vectors.shape[1]
    first, last = nn.Linear(width, HIDDEN), nn.Linear(HIDDEN, LATENT)
    encoder = nn.Sequential(first, nn.ReLU(), last)
    decoder = nn.Sequential(nn.Linear(LATENT, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, width))
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], RATE)
    steps = min(max(EPOCHS * len(data) // BATCH, MIN_STEPS), MAX_STEPS)
    codes: Codes | None = None
    for step in range(steps):
        if codes is None and step >= WARM_UP * steps:
            with torch.no_grad():
                codes = Codes(encoder(data[_sample(len(data), 64 * num_codes)]), levels, num_codes, seed)
        batch = data[torch.randint(len(data), (BATCH,))]
        latents = encoder(batch)
        quantised, commitment = codes(latents) if codes is not None else (latents, latents.new_zeros(()))
        loss = functional.mse_loss(decoder(quantised), batch) + commitment
        _check_number(loss, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        # The encoder moved while the averages followed: fit the codebooks to where the latents ended.
        codes = Codes(encoder(data[_sample(len(data), 64 * num_codes)]), levels, num_codes, seed)
    weights = (first.weight.T, first.bias, last.weight.T, last.bias)
    return Encoder(scale, *(part.detach().numpy().copy() for part in weights)), codes.tables.numpy()


def _check_number(loss: Tensor, step: int) -> None:
    if not torch.isfinite(loss):
        raise DataError(
            "the RQ-VAE diverged: its loss is not a number",
            where=f"step {step}",
            mend='Set index.method = "kmeans", or look for vectors of huge values.',
        )


def _nearest(rows: Tensor, table: Tensor) -> Tensor:
    return torch.cdist(rows, table).argmin(1)


def _kmeans(rows: Floats, num_codes: int, seed: int) -> Floats:
    kmeans = faiss.Kmeans(rows.shape[1], num_codes, niter=8, seed=seed, min_points_per_centroid=1)
    kmeans.train(np.ascontiguousarray(rows))
    assert kmeans.centroids is not None
    return kmeans.centroids


def _sample(num: int, size: int) -> Tensor:
    return torch.randperm(num)[: min(num, max(size, BATCH))]
