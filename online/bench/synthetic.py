"""A release of any size around a real decoder graph: random weights and items, the real shapes and the real work."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from online.graph import Array
from schemas.graphs import DECODER, INTENT_ENCODER, PROMPT_ENCODER
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import (
    ARRAYS,
    CATALOGUE,
    MANIFEST,
    PROFILES,
    SIGNATURE,
    Catalogue,
    Content,
    Manifest,
    Model,
    Profiles,
    content_id,
    file_entry,
    load_private_key,
    write_manifest,
)
from schemas.state import IntentState

GRAPHS = (INTENT_ENCODER, PROMPT_ENCODER, DECODER)
LIST_LENGTH = 200
CATEGORIES = 40


def trie(model: Model, draw: np.random.Generator) -> dict[str, Array]:
    """Items with distinct codes, in their order, and the arrays of ``schemas.graphs`` that describe them."""
    flat = np.sort(draw.choice(model.codes**model.levels, model.num_items, replace=False))
    codes = np.stack(np.unravel_index(flat, (model.codes,) * model.levels), axis=1).astype(np.int64)
    arrays: dict[str, Array] = {"item_codes": codes}
    path = np.zeros((model.num_items, model.levels), np.int64)
    parents = np.zeros(1, np.int64)  # of each node at this depth, its prefix as one number
    for level in range(model.levels):
        prefixes = np.unique(flat // model.codes ** (model.levels - 1 - level))
        of_parent = np.searchsorted(parents, prefixes // model.codes)
        counts = np.bincount(of_parent, minlength=len(parents))
        arrays[f"offset_{level}"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        arrays[f"child_{level}"] = prefixes % model.codes
        arrays[f"fan_{level}"] = np.arange(counts.max(), dtype=np.int64)
        path[:, level] = np.searchsorted(parents, flat // model.codes ** (model.levels - level))
        parents = prefixes
    return arrays | {"item_path": path}


def category_sets(path: Array, category: Array) -> dict[str, Array]:
    """Of at most 64 categories (``schemas.graphs``)."""
    held = [np.zeros(node.max() + 1, np.uint64) for node in path.T[1:]]
    for words, node in zip(held, path.T[1:], strict=True):
        np.bitwise_or.at(words, node, np.uint64(1) << category.astype(np.uint64))
    words, row = np.unique(np.concatenate(held), return_inverse=True)
    rows = np.split(row.astype(np.int64), np.cumsum([len(words) for words in held])[:-1])
    return {f"set_{level}": one for level, one in enumerate(rows)} | {"category_sets": words.view(np.int64)[:, None]}


def make_release(source: Path, target: Path, num_items: int, key_path: Path) -> Manifest:
    """Write and sign ``target`` with the graphs of ``source`` and ``num_items`` items made up."""
    made_from = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
    model = msgspec.structs.replace(made_from.content.model, num_items=num_items)
    draw = np.random.default_rng(1)
    (target / ARRAYS).mkdir(parents=True)
    for name in GRAPHS:
        shutil.copy(source / name, target / name)
    arrays = trie(model, draw) | _weights(model, draw)
    for name, array in (arrays | category_sets(arrays["item_path"], arrays["item_category"])).items():
        np.save(target / ARRAYS / f"{name}.npy", array)
    # Nothing on the way of a request reads these: holes in a file will do.
    for name, kind, shape in (
        ("item_in", np.float32, (num_items + 1, model.width)),
        ("neighbour_items", np.int32, (num_items, model.neighbours)),
        ("neighbour_scores", np.float32, (num_items, model.neighbours)),
    ):
        np.lib.format.open_memmap(target / ARRAYS / f"{name}.npy", "w+", kind, shape).flush()
    ids = [f"item-{number:07d}" for number in range(num_items)]
    catalogue = Catalogue(ids, ids, [f"category {n}" for n in range(CATEGORIES)])
    (target / CATALOGUE).write_bytes(msgspec.msgpack.encode(catalogue))
    (target / PROFILES).write_bytes(msgspec.msgpack.encode(Profiles([f"b{n}" for n in range(model.num_buckets)], {})))
    files = {str(p.relative_to(target)): file_entry(p) for p in sorted(target.rglob("*")) if p.is_file()}
    content = Content(model=model, files=files, minimum_runtimes={})
    manifest = Manifest(id=content_id(content), content=content, metrics={}, made_at=int(time.time() * 1000))
    write_manifest(target, manifest, load_private_key(key_path, create=True))
    return manifest


def make_variant(source: Path, target: Path, key_path: Path, arrays: Mapping[str, Array]) -> Manifest:
    """Another release of the same files, but for these arrays; files are shared, not copied."""
    shutil.copytree(source, target, copy_function=os.link)
    for name, array in arrays.items():
        path = target / ARRAYS / f"{name}.npy"
        path.unlink()
        np.save(path, array)
    made_from = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
    files = made_from.content.files | {
        f"{ARRAYS}/{name}.npy": file_entry(target / ARRAYS / f"{name}.npy") for name in arrays
    }
    content = msgspec.structs.replace(made_from.content, files=files, parents=[made_from.id], input_hash=target.name)
    manifest = msgspec.structs.replace(made_from, id=content_id(content), content=content)
    for name in (MANIFEST, SIGNATURE):
        (target / name).unlink()  # else the source's would be written over
    write_manifest(target, manifest, load_private_key(key_path))
    return manifest


def make_failing(source: Path, target: Path, key_path: Path) -> Manifest:
    """It loads and warms, for nobody's neighbours are asked for then; every real request leaves the arrays' bounds."""
    path = np.load(source / ARRAYS / "item_path.npy")
    path[1:] = np.iinfo(np.int64).max // 2
    return make_variant(source, target, key_path, {"item_path": path})


def corrupt(folder: Path) -> None:
    """Flip a byte of the decoder: the checksum is wrong from here on."""
    path = folder / DECODER
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.unlink()  # the file may be shared
    path.write_bytes(raw)


def promote(manifest: Manifest, folder: Path) -> None:
    """Make it the current release of the registry."""
    registry = Registry()
    row = ReleaseRow(manifest.id, str(folder), "", {}, Status.FUTURE, manifest.made_at)
    registry.publish(row, why="bench")
    registry.promote(manifest.id, why="bench")


def make_state(manifest: Manifest, user_id: str, draw: np.random.Generator) -> IntentState:
    """A state as the near-line tier would leave it, made up."""
    model, now_ms = manifest.content.model, int(time.time() * 1000)
    return IntentState(
        user_id=user_id,
        release=manifest.id,
        made_at=now_ms,
        watermark=now_ms,
        arrived_at=now_ms,
        bucket=int(draw.integers(model.num_buckets)),
        rows=draw.standard_normal((model.state_rows, model.width)).astype("<f2").tobytes(),
        num_rows=model.state_rows,
        items=draw.integers(0, model.num_items, model.window).tolist(),
        kinds=[2] * model.window,
        times=[now_ms] * model.window,
        neighbour_items=draw.integers(0, model.num_items, model.neighbours).tolist(),
        neighbour_scores=np.linspace(1, 0.1, model.neighbours).tolist(),
    )


def _weights(model: Model, draw: np.random.Generator) -> dict[str, Array]:
    buckets, length = model.num_buckets, min(LIST_LENGTH, model.num_items)
    return {
        "item_out": draw.standard_normal((model.num_items, model.width), np.float32),
        "item_bias": draw.standard_normal(model.num_items, np.float32),
        "item_category": draw.integers(0, CATEGORIES, model.num_items),
        "intent_defaults": draw.standard_normal((buckets, model.state_rows, model.width), np.float32),
        "prompt_defaults": draw.standard_normal((buckets, model.prompt_rows, model.width), np.float32),
        "cohort_items": draw.integers(0, model.num_items, (buckets, length)).astype(np.int32),
        "cohort_scores": np.tile(np.linspace(2, 1, length, dtype=np.float32), (buckets, 1)),
    }
