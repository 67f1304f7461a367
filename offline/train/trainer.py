"""The training loop: seeded, resumable, stopped early on validation."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from offline.train.examples import Examples
from offline.train.ranks import Ranks
from schemas import cli

MOST_TARGETS = 120_000
"""An epoch looks at all windows, or at a random part of them where there are more targets than that."""
WARM_UP = 50
PATIENCE = 5
WEIGHT_DECAY = 0.05
MEMORY = 100
"""Steps that the mean of the weights reaches back, about. What is judged and kept is that mean: it swings less from
step to step, and finds more."""
WEIGHTS, STATE = "weights.safetensors", "state.json"


class Aligned(msgspec.Struct, frozen=True):
    """What came of alignment: ``off``, ``no pairs`` (too few), ``kept`` or ``not kept``; ``values`` on validation:
    before, and after each pass."""

    outcome: str = "off"
    pairs: int = 0
    values: list[float] = []


class Progress(msgspec.Struct):
    """How far a training is, beside the weights of the checkpoint; ``aligned`` and ``lift`` (of the items that nobody
    took, see ``offline.train.cold``) are what came after it."""

    epoch: int = 0
    best: float = -1.0
    best_epoch: int = 0
    values: list[float] = []
    aligned: Aligned = Aligned()
    lift: float = 0.0


@dataclass
class Trainer:
    """``losses`` holds the network and gives the loss of a batch. ``value`` judges the network on validation (higher
    is better). ``batch_size`` counts targets, about, of a step of one process. ``device`` as torch names it. It stops
    after ``patience`` epochs without a better value."""

    network: nn.Module
    losses: nn.Module
    examples: Examples
    value: Callable[[Any], float]
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    ranks: Ranks = field(default_factory=Ranks)
    device: str = "cpu"
    patience: int = PATIENCE

    def run(self, checkpoint: Path) -> Progress:
        """Train, and leave the best weights in the network. Continues from ``checkpoint`` if there is one.

        The same inputs, threads and number of processes give the same bits.
        """
        torch.use_deterministic_algorithms(True)
        self.losses.to(self.device)  # the network is a part of it
        optimiser, mean = self._optimiser(), AveragedModel(self.network, avg_fn=_nearer)
        progress = self._resume(checkpoint, optimiser, mean)
        with cli.bar() as bar:
            task = bar.add_task("train", total=self.epochs * self.steps, completed=progress.epoch * self.steps)
            while progress.epoch < self.epochs and progress.epoch - progress.best_epoch < self.patience + (
                progress.epoch == 0
            ):
                self._epoch(progress.epoch, optimiser, mean, lambda: bar.advance(task))
                self._judge(progress, checkpoint, mean.module)
                if self.ranks.first:
                    self._checkpoint(checkpoint, optimiser, mean.module, progress)
        self.ranks.agree(0.0)  # the first has written what all read now
        self.network.load_state_dict(load_file(checkpoint / f"best-{WEIGHTS}"))
        self.network.cpu()
        return progress

    @property
    def windows(self) -> int:
        """Of a step, in one process."""
        return max(1, round(self.batch_size / self.examples.mean_targets))

    @property
    def most_windows(self) -> int:
        """Of an epoch."""
        return max(1, round(MOST_TARGETS / self.examples.mean_targets))

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return max(1, min(self.most_windows, self.examples.num_windows) // (self.windows * self.ranks.size))

    def _epoch(
        self, epoch: int, optimiser: torch.optim.Optimizer, mean: AveragedModel, advance: Callable[[], None]
    ) -> None:
        # Every epoch has its own seed: a training that was interrupted goes on as if it had not been.
        torch.manual_seed((self.seed * 1_000 + epoch) * 1_000 + self.ranks.rank)
        batches = self.examples.epoch(self.windows, self.most_windows, np.random.default_rng((self.seed, epoch)))
        self.network.train()
        for step, batch in enumerate(self.ranks.share(batches, self.steps), epoch * self.steps):
            for group in optimiser.param_groups:
                group["lr"] = self.learning_rate * self._pace(step)
            optimiser.zero_grad(set_to_none=True)
            self.losses(batch.to(self.device)).backward()
            self.ranks.average(self.network.parameters())
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            optimiser.step()
            mean.n_averaged.fill_(step)
            mean.update_parameters(self.network)
            advance()

    def _judge(self, progress: Progress, checkpoint: Path, mean: nn.Module) -> None:
        """Ends an epoch: the first process looks at validation, all learn what it saw."""
        value = self.ranks.agree(self.value(self._on_cpu(mean)) if self.ranks.first else 0.0)
        progress.epoch += 1
        progress.values.append(round(value, 5))
        if value >= progress.best:  # of equals the later: its rate has come down further
            progress.best, progress.best_epoch = value, progress.epoch
            if self.ranks.first:
                _save(mean.state_dict(), checkpoint / f"best-{WEIGHTS}")

    def _on_cpu(self, network: nn.Module) -> nn.Module:
        return network if self.device == "cpu" else copy.deepcopy(network).cpu()

    def _optimiser(self) -> torch.optim.Optimizer:
        matrices = [p for p in self.network.parameters() if p.dim() >= 2]
        others = [p for p in self.network.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=self.learning_rate, betas=(0.9, 0.98), fused=True)

    def _pace(self, step: int) -> float:
        """Share of the learning rate: up in 50 steps, then down along a cosine."""
        done = step / (self.epochs * self.steps)
        return min((step + 1) / WARM_UP, 1.0) * max(0.02, 0.5 * (1 + math.cos(math.pi * done)))

    def _checkpoint(self, folder: Path, optimiser: torch.optim.Optimizer, mean: nn.Module, progress: Progress) -> None:
        moments = {
            f"{number}.{name}": value
            for number, state in optimiser.state_dict()["state"].items()
            for name, value in state.items()
        }
        _save(self.network.state_dict(), folder / WEIGHTS)
        _save(mean.state_dict(), folder / f"mean-{WEIGHTS}")
        _save(moments, folder / f"optimiser-{WEIGHTS}")
        # Last: what it names is there.
        draft = folder / f".{STATE}"
        draft.write_bytes(msgspec.json.encode(progress))
        draft.replace(folder / STATE)

    def _resume(self, folder: Path, optimiser: torch.optim.Optimizer, mean: AveragedModel) -> Progress:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / STATE).exists():
            return Progress()
        progress = msgspec.json.decode((folder / STATE).read_bytes(), type=Progress)
        self.network.load_state_dict(load_file(folder / WEIGHTS, self.device))
        mean.module.load_state_dict(load_file(folder / f"mean-{WEIGHTS}", self.device))
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in load_file(folder / f"optimiser-{WEIGHTS}", self.device).items():
            number, _, name = key.partition(".")
            state.setdefault(int(number), {})[name] = value
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
        cli.say(f"  continues after epoch {progress.epoch}")
        return progress


def _nearer(mean: Tensor, now: Tensor, step: Tensor | int) -> Tensor:
    """The mean after ``step`` steps before this one; at the beginning it reaches back a tenth of them."""
    return mean + (now - mean) / min(MEMORY, float(step) / 10 + 1)


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    draft = path.with_name(f".{path.name}")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, draft)
    draft.replace(path)
