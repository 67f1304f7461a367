"""Stage ``train``: the generator's weights."""

from __future__ import annotations

import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from offline.build.catalogue import Data, Index, read_data, read_index
from offline.build.stage import Build, Result
from offline.histories import read_buckets
from offline.model.architecture import Architecture, from_plan
from offline.model.generator import Generator
from offline.train.fit import Material, Where, fit
from offline.train.trainer import WEIGHTS, Progress
from offline.train.worker import train_with_others


def train(build: Build, folder: Path) -> Result:
    """Writes ``weights.safetensors``. A training that was killed goes on from its last epoch."""
    if build.processes > 1:
        progress = train_with_others(build, folder)
    else:
        generator, progress = fit_build(build, Where(build.threads, device=build.device))
        save_file(generator.state_dict(), folder / WEIGHTS)
    shutil.rmtree(_checkpoint(build))
    return {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "values": progress.values,
        "parameters": sum(tensor.numel() for tensor in load_file(folder / WEIGHTS).values()),
        "aligned": progress.aligned.outcome,
        "pairs": progress.aligned.pairs,
        "aligned_values": progress.aligned.values,
        "cold_lift": progress.lift,
        "says": f"{progress.epoch} epochs, best {progress.best_epoch}; aligned: {progress.aligned.outcome}",
    }


def fit_build(build: Build, where: Where) -> tuple[Generator, Progress]:
    """Train on what the stages before left; the checkpoint belongs to these inputs and settings."""
    index = read_index(build)
    material = material_of(index, read_data(build, index.number))
    return fit(architecture(build, index), material, build.plan.model, _checkpoint(build), where)


def material_of(index: Index, data: Data) -> Material:
    """A build's index and data as ``fit`` takes them."""
    return Material(
        index.vectors,
        index.codes,
        index.trie,
        index.nearest,
        index.category,
        data.train,
        data.validation,
        data.buckets,
    )


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


def _checkpoint(build: Build) -> Path:
    model = build.plan.model
    settings = (
        f"{model.epochs}-{model.batch_size}-{model.learning_rate:g}-{model.negatives}-{model.seed}-{build.processes}"
    )
    return build.work / "train" / f"checkpoint-{build.records['index'].hash}-{settings}"
