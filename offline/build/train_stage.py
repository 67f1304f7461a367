"""Stage ``train``: the generator's weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from offline.build.catalogue import Index, read_data, read_index
from offline.build.stage import Build, Result
from offline.histories import read_buckets
from offline.index.neighbours import window_neighbours
from offline.metrics import quality
from offline.model.architecture import Architecture, from_plan
from offline.model.generator import Generator
from offline.recall import Recaller
from offline.train.examples import Examples
from offline.train.losses import FLOOR, Losses
from offline.train.near import NearScores
from offline.train.trainer import WEIGHTS, Trainer

DROPOUT = 0.3
JUDGED = 500
"""Validation cases that decide when to stop; the weights of the scores are chosen on all of them."""


def train(build: Build, folder: Path) -> Result:
    """Writes ``weights.safetensors``. A training that was killed goes on from its last epoch."""
    torch.set_num_threads(build.threads)
    torch.manual_seed(build.plan.model.seed)
    index = read_index(build)
    data = read_data(build, index.number)
    generator = Generator(architecture(build, index), index.vectors, index.codes, DROPOUT)
    near = NearScores(index.folds, index.decay)
    some = data.validation[:JUDGED]
    near_some = window_neighbours(some, index.lists, index.decay, build.plan.nearline.neighbours)

    def value(trained: Generator) -> float:
        recaller = Recaller(trained, index.trie, index.category)
        found = recaller.candidates(some, near_some, prompted=False)
        lists = recaller.lists(found, [0.0, 1.0, float(trained.near_weight.detach()), FLOOR])
        got = quality(lists, [case.target for case in some])
        return got["recall_at_10"] + got["recall_at_50"]

    model = build.plan.model
    checkpoint = build.work / "train" / f"checkpoint-{build.records['index'].hash}-{_settings_tag(build)}"
    progress = Trainer(
        generator,
        Losses(generator, index.trie, index.nearest, near),
        Examples(data.train, data.buckets, model.window, model.local_events),
        value,
        model.epochs,
        model.batch_size,
        model.learning_rate,
        model.seed,
    ).run(checkpoint)
    save_file(generator.state_dict(), folder / WEIGHTS)
    shutil.rmtree(checkpoint)
    return {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "values": progress.values,
        "parameters": sum(p.numel() for p in generator.parameters()),
        "says": f"{progress.epoch} epochs, best {progress.best_epoch}",
    }


def architecture(build: Build, index: Index) -> Architecture:
    """The sizes of this build's generator."""
    return from_plan(
        build.plan,
        num_items=len(index.vectors),
        num_buckets=len(read_buckets(build.data).names),
        vector_width=index.vectors.shape[1],
        codes=index.num_codes,
    )


def read_generator(build: Build, index: Index) -> Generator:
    """The trained generator."""
    generator = Generator(architecture(build, index), index.vectors, index.codes)
    generator.load_state_dict(load_file(build.folder("train") / WEIGHTS))
    return generator.eval()


def _settings_tag(build: Build) -> str:
    model = build.plan.model
    return f"{model.epochs}-{model.batch_size}-{model.learning_rate:g}-{model.seed}"
