"""The release that items are inserted into, and the one that holds the changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from offline.build.report_page import ensure_page
from offline.index.insert import Grown
from offline.release_folder import Parts, make_release
from schemas.lineage import LINEAGE, Lineage, Step, read_lineage
from schemas.locations import private_key_path, releases_dir
from schemas.registry import Registry, ReleaseRow, Status
from schemas.registry.database import wall_ms
from schemas.release import (
    ARRAYS,
    CATALOGUE,
    PROFILES,
    REPORT,
    Catalogue,
    Manifest,
    Profiles,
    load_private_key,
    read_manifest,
    verify_files,
)

Array = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Base:
    """A release that a build made, its arrays memory-mapped; codes [N, L] by item number."""

    id: str
    folder: Path
    manifest: Manifest
    arrays: dict[str, Array]
    codes: Ints
    catalogue: Catalogue


@dataclass(frozen=True)
class Changed:
    """What the new release holds: the grown index, its arrays, its catalogue, the serials of what is withdrawn."""

    grown: Grown
    arrays: Mapping[str, Array]
    catalogue: Catalogue
    withdrawn: list[int]
    digest: str  # equal for equal changes, empty for none


def read_base(release: str) -> Base:
    """Raises ``ReleaseError``: it is gone or damaged."""
    folder = releases_dir() / Registry().get(release).path
    manifest = read_manifest(folder, load_private_key(private_key_path()).public_key())
    verify_files(folder, manifest)
    arrays: dict[str, Array] = {
        path.stem: np.load(path, mmap_mode="r") for path in sorted((folder / ARRAYS).glob("*.npy"))
    }
    catalogue = msgspec.msgpack.decode((folder / CATALOGUE).read_bytes(), type=Catalogue)
    return Base(release, folder, manifest, arrays, np.asarray(arrays["item_codes"], np.int64), catalogue)


def publish_grown(base: Base, changed: Changed, parent: ReleaseRow) -> tuple[str, bool]:
    """Sign and register the release; returns its id, and whether it is new.

    ``parent`` is the newest of the family. When it holds the same changes nothing is made: it is returned.
    """
    if _inserted(releases_dir() / parent.path).get("digest", "") == changed.digest:
        return parent.id, False
    content, num_inserted = base.manifest.content, len(changed.grown.new)
    told = {
        "into": base.id,
        "parent": parent.id,
        "items": num_inserted,
        "withdrawn": len(changed.withdrawn),
        "digest": changed.digest,
    }
    parts = Parts(
        model=msgspec.structs.replace(content.model, num_items=len(changed.grown.codes)),
        graphs=base.folder,
        arrays=changed.arrays,
        catalogue=changed.catalogue,
        profiles=msgspec.msgpack.decode((base.folder / PROFILES).read_bytes(), type=Profiles),
        report=msgspec.json.decode((base.folder / REPORT).read_bytes(), type=dict[str, Any]) | {"inserted": told},
        metrics=base.manifest.metrics,
        input_hash=content.input_hash,
        parents=[*content.parents, parent.id],
        lineage=_lineage(base, changed, parent),
    )
    # Generator and lists are as old as they were; only the registry's row is of now.
    key, made_at = load_private_key(private_key_path()), base.manifest.made_at
    manifest = make_release(releases_dir(), parts, key, made_at_ms=made_at)
    folder = releases_dir() / manifest.id
    verify_files(folder, manifest)
    ensure_page(folder, manifest)
    row = ReleaseRow(manifest.id, str(folder), content.input_hash, manifest.metrics, Status.FUTURE, wall_ms())
    why = f"{num_inserted} items inserted into {base.id}, {len(changed.withdrawn)} withdrawn"
    return manifest.id, Registry().publish(row, why=why)


def inserted_into(folder: Path) -> str | None:
    """The release that the one in ``folder`` was grown from; None for one that a build made."""
    return _inserted(folder).get("into")


def family_of(row: ReleaseRow) -> str:
    """The release that a build made of which this one grew; itself when a build made it."""
    return inserted_into(releases_dir() / row.path) or row.id


def _inserted(folder: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = msgspec.json.decode((folder / REPORT).read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return report.get("inserted", {})


def _lineage(base: Base, changed: Changed, parent: ReleaseRow) -> Lineage:
    """The parent's with one step more: the parent itself."""
    rank = np.empty(len(changed.grown.codes), np.int64)
    rank[np.lexsort(changed.grown.codes.T[::-1])] = np.arange(len(rank))
    path = releases_dir() / parent.path / LINEAGE
    before = read_lineage(path.read_bytes(), str(path)) if path.exists() else Lineage(len(base.codes), [], [], [])
    told = set[int]()
    for step in before.steps:
        told = (told | set(step.withdrawn)) - set(step.back)
    gone = set(before.withdrawn)
    step = Step(parent.id, len(before.inserted), sorted(gone - told), sorted(told - gone))
    inserted = rank[changed.grown.new].tolist()
    return Lineage(len(base.codes), inserted, changed.withdrawn, [*before.steps, step])
