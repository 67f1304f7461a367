"""From an index and histories to a trained generator: what the build does, and what the quality bench measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from offline.histories import Buckets, Case, Histories
from offline.index.neighbours import Neighbours
from offline.metrics import quality
from offline.model.architecture import Architecture
from offline.model.generator import Generator
from offline.recall import Recaller
from offline.train.align import align
from offline.train.cold import lift_cold
from offline.train.examples import Examples
from offline.train.losses import Losses
from offline.train.ranks import Ranks
from offline.train.trainer import Progress, Trainer
from schemas.plan_types import ModelPlan

Ints = NDArray[np.int64]
DROPOUT = 0.3
JUDGED = 1_500
"""Validation cases that decide when to stop; the weights of the scores are chosen on all of them."""
PLAIN = (1.0, 2.0, 0.0, 1.0)
"""The scores' weights while training: the generator by itself, without neighbours."""


@dataclass(frozen=True)
class Material:
    """What a generator is trained on: items by their numbers, in the order of their semantic IDs."""

    vectors: NDArray[np.float32]
    codes: Ints
    trie: dict[str, Ints]
    nearest: Ints  # [N, 10], for swapping
    category: Ints
    train: Histories
    validation: list[Case]
    buckets: Buckets


@dataclass(frozen=True)
class Where:
    """What trains: threads of this process, the processes, the device as torch names it."""

    threads: int = 1
    ranks: Ranks = field(default_factory=Ranks)
    device: str = "cpu"


def fit(
    arch: Architecture, material: Material, model: ModelPlan, checkpoint: Path, where: Where
) -> tuple[Generator, Progress]:
    """Train, align, and lift the items that nobody took; goes on from ``checkpoint`` if there is one.

    Threads, processes and seed given, the bits are too.
    """
    torch.set_num_threads(where.threads)
    torch.manual_seed(model.seed)
    generator = Generator(arch, material.vectors, material.codes, DROPOUT)

    def value(trained: Generator) -> float:
        return validation_value(trained, material)

    losses = Losses(generator, material.trie, material.nearest, model.negatives)
    examples = Examples(material.train, material.buckets, model.window, model.local_events)
    trainer = Trainer(
        generator,
        losses,
        examples,
        value,
        model.epochs,
        model.batch_size,
        model.learning_rate,
        model.seed,
        where.ranks,
        where.device,
    )
    progress = trainer.run(checkpoint)
    if model.align and where.ranks.first:  # the first process writes; the others are done
        progress.aligned = align(losses.cpu(), examples, value, model.seed)
    if where.ranks.first:
        bought = np.bincount(material.train.item, minlength=arch.num_items)
        progress.lift = lift_cold(generator, bought, value)
    return generator, progress


def validation_value(trained: Generator, material: Material) -> float:
    """Recall@10 + Recall@50 on validation, of the generator by itself."""
    some = material.validation[:JUDGED]
    recaller = Recaller(trained, material.trie, material.category)
    lists = recaller.lists(recaller.candidates(some, no_neighbours(len(some)), prompted=False), PLAIN)
    got = quality(lists, [case.target for case in some])
    return got["recall_at_10"] + got["recall_at_50"]


def no_neighbours(cases: int) -> Neighbours:
    """For a generator by itself."""
    return Neighbours(np.full((cases, 1), -1, np.int32), np.zeros((cases, 1), np.float32))
