"""A release that grew from the fixture by one item, as the offline tier's insertion makes it: graphs to the byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
from online_values import FIXTURES, KEY

from schemas.lineage import LINEAGE, Lineage, Step
from schemas.release import (
    ARRAYS,
    CATALOGUE,
    Catalogue,
    content_id,
    file_entry,
    load_private_key,
    read_manifest,
    write_manifest,
)

NEW = "new item"


def insert_one(folder: Path) -> int:
    """Write it to ``folder``; returns the new item's number. Those behind it move up by one."""
    shutil.copytree(FIXTURES / "release", folder)
    manifest = read_manifest(folder, KEY)
    arrays = {path.stem: np.load(path) for path in (folder / ARRAYS).glob("*.npy")}
    number = _grow(arrays, manifest.content.model.codes)
    for name, array in arrays.items():
        np.save(folder / ARRAYS / f"{name}.npy", array)
    catalogue = msgspec.msgpack.decode((folder / CATALOGUE).read_bytes(), type=Catalogue)
    catalogue.item_ids.insert(number, NEW)
    catalogue.titles.insert(number, "A new item")
    (folder / CATALOGUE).write_bytes(msgspec.msgpack.encode(catalogue))
    lineage = Lineage(manifest.content.model.num_items, [number], [], [Step(manifest.id, 0)])
    (folder / LINEAGE).write_bytes(msgspec.msgpack.encode(lineage))
    files = {name: file_entry(folder / name) for name in (*manifest.content.files, LINEAGE)}
    model = msgspec.structs.replace(manifest.content.model, num_items=len(catalogue.item_ids))
    content = msgspec.structs.replace(manifest.content, model=model, files=files, parents=[manifest.id])
    grown = msgspec.structs.replace(manifest, content=content, id=content_id(content))
    write_manifest(folder, grown, load_private_key(FIXTURES / "release.pem"))
    return number


def _grow(arrays: dict[str, np.ndarray], codes: int) -> int:
    """Behind the last child of a leaf's parent in the middle whose next code is free."""
    offset, child = arrays["offset_2"], arrays["child_2"]
    node = next(n for n in range(len(offset) // 3, len(offset) - 1) if child[offset[n + 1] - 1] + 1 < codes)
    number = int(offset[node + 1])
    arrays["child_2"] = np.insert(child, number, child[number - 1] + 1)
    offset[node + 1 :] += 1
    arrays["fan_2"] = np.arange(np.diff(offset).max())
    for name in ("item_codes", "item_path", "item_out", "item_bias", "item_category"):
        arrays[name] = np.insert(arrays[name], number, arrays[name][number - 1], axis=0)
    arrays["item_codes"][number, -1] += 1
    arrays["item_in"] = np.insert(arrays["item_in"], number + 1, arrays["item_in"][number], axis=0)
    for name in ("neighbour_items", "cohort_items"):
        arrays[name] = arrays[name] + (arrays[name] >= number).astype(np.int32)
    for name in ("neighbour_items", "neighbour_scores"):
        arrays[name] = np.insert(arrays[name], number, arrays[name][number - 1], axis=0)
    return number
