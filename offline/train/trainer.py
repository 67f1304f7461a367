"""The training loop: seeded, resumable, stopped early on validation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from offline.model.generator import Generator
from offline.train.examples import TARGETS, Examples
from offline.train.losses import Losses
from schemas import cli

MIN_WINDOWS, SHARE = 1_500, 0.15
"""An epoch looks at a random share of all windows, and at no fewer than that (when there are)."""
WARM_UP = 50
PATIENCE = 3
WEIGHT_DECAY = 0.05
WEIGHTS, STATE = "weights.safetensors", "state.json"


class Progress(msgspec.Struct):
    """How far a training is, beside the weights of the checkpoint."""

    epoch: int = 0
    best: float = -1.0
    best_epoch: int = 0
    values: list[float] = []


@dataclass
class Trainer:
    """``value`` judges a generator on validation (higher is better). ``batch_size`` counts targets: a step looks at
    ``batch_size / 16`` windows. Small steps fit the cache and learn more per second."""

    generator: Generator
    losses: Losses
    examples: Examples
    value: Callable[[Generator], float]
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int

    def run(self, checkpoint: Path) -> Progress:
        """Train, and leave the best weights in the generator. Continues from ``checkpoint`` if there is one."""
        optimiser, schedule = self._optimiser()
        progress = self._resume(checkpoint, optimiser, schedule)
        with cli.bar() as bar:
            task = bar.add_task(
                "train", total=self.epochs * self.num_batches, completed=progress.epoch * self.num_batches
            )
            while progress.epoch < self.epochs and progress.epoch - progress.best_epoch < PATIENCE + (
                progress.epoch == 0
            ):
                self._epoch(progress.epoch, optimiser, schedule, lambda: bar.advance(task))
                progress.epoch += 1
                value = self.value(self.generator)
                progress.values.append(round(value, 5))
                if value > progress.best:
                    progress.best, progress.best_epoch = value, progress.epoch
                    _save(self.generator.state_dict(), checkpoint / f"best-{WEIGHTS}")
                self._checkpoint(checkpoint, optimiser, progress)
        self.generator.load_state_dict(load_file(checkpoint / f"best-{WEIGHTS}"))
        return progress

    @property
    def most_windows(self) -> int:
        """Of an epoch."""
        return max(MIN_WINDOWS, int(SHARE * self.examples.num_windows))

    @property
    def num_batches(self) -> int:
        """Of an epoch."""
        return self.examples.num_batches(self.windows, self.most_windows)

    @property
    def windows(self) -> int:
        """Of a step."""
        return max(1, self.batch_size // TARGETS)

    def _epoch(self, epoch: int, optimiser: torch.optim.Optimizer, schedule: Any, advance: Callable[[], None]) -> None:
        # Every epoch has its own seed: a training that was interrupted goes on as if it had not been.
        torch.manual_seed(self.seed * 1_000 + epoch)
        rng = np.random.default_rng((self.seed, epoch))
        self.generator.train()
        for batch in self.examples.epoch(self.windows, self.most_windows, rng):
            optimiser.zero_grad(set_to_none=True)
            self.losses(batch).backward()
            nn.utils.clip_grad_norm_(self.generator.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            advance()

    def _optimiser(self) -> tuple[torch.optim.Optimizer, Any]:
        matrices = [p for p in self.generator.parameters() if p.dim() >= 2]
        others = [p for p in self.generator.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        optimiser = torch.optim.AdamW(groups, lr=self.learning_rate, betas=(0.9, 0.98), fused=True)
        steps = self.epochs * self.num_batches

        def cosine(step: int) -> float:
            return min((step + 1) / WARM_UP, 1.0) * max(0.02, 0.5 * (1 + math.cos(math.pi * step / steps)))

        return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, cosine)

    def _checkpoint(self, folder: Path, optimiser: torch.optim.Optimizer, progress: Progress) -> None:
        moments = {
            f"{number}.{name}": value
            for number, state in optimiser.state_dict()["state"].items()
            for name, value in state.items()
        }
        _save(self.generator.state_dict(), folder / WEIGHTS)
        _save(moments, folder / f"optimiser-{WEIGHTS}")
        # Last: what it names is there.
        draft = folder / f".{STATE}"
        draft.write_bytes(msgspec.json.encode(progress))
        draft.replace(folder / STATE)

    def _resume(self, folder: Path, optimiser: torch.optim.Optimizer, schedule: Any) -> Progress:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / STATE).exists():
            return Progress()
        progress = msgspec.json.decode((folder / STATE).read_bytes(), type=Progress)
        self.generator.load_state_dict(load_file(folder / WEIGHTS))
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in load_file(folder / f"optimiser-{WEIGHTS}").items():
            number, _, name = key.partition(".")
            state.setdefault(int(number), {})[name] = value
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
        for _ in range(progress.epoch * self.num_batches):
            schedule.step()
        cli.say(f"  continues after epoch {progress.epoch}")
        return progress


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    draft = path.with_name(f".{path.name}")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, draft)
    draft.replace(path)
