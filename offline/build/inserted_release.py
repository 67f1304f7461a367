"""The release that items are inserted into, and the one that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from offline.build.report_page import ensure_page
from offline.build.stage import Build, read_record
from offline.index.insert import Grown
from offline.release_folder import Parts, make_release
from schemas.errors import DataError
from schemas.locations import private_key_path, releases_dir
from schemas.registry import Registry, ReleaseRow, Status
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

Ints = NDArray[np.int64]
NEEDED = ("encode", "index", "publish")


@dataclass(frozen=True)
class Base:
    """The build's own release: its arrays and, by item number, codes [N, L] and text vectors [N, t]."""

    id: str
    folder: Path
    manifest: Manifest
    arrays: dict[str, NDArray[np.generic]]
    codes: Ints
    text: NDArray[np.float32]
    catalogue: Catalogue


def read_base(build: Build) -> Base:
    """The release of the last whole build, its signature and files checked. Newer data change nothing about it.

    Raises:
        DataError: no build came to its end, or stages ran again since: their files are of another release.
        ReleaseError: the release is gone or damaged.
    """
    for stage in NEEDED:
        if (record := read_record(build, stage)) is None:
            raise DataError(f"the stage {stage} has not run", where=str(build.work), mend=_build_first(build))
        build.records[stage] = record
    release = build.result("publish")["release"]
    folder = releases_dir() / release
    manifest = read_manifest(folder, load_private_key(private_key_path()).public_key())
    verify_files(folder, manifest)
    arrays = {path.stem: np.load(path, mmap_mode="r") for path in sorted((folder / ARRAYS).glob("*.npy"))}
    index = build.records["index"]
    encoded = index.parts.get("after", {}).get("encode")
    if index.hash not in manifest.content.parents or encoded != build.records["encode"].hash:
        raise DataError(
            "stages ran since this release was made", where=str(build.work), value=release, mend=_build_first(build)
        )
    order = np.load(build.folder("index") / "order.npy")
    return Base(
        release,
        folder,
        manifest,
        arrays,
        np.asarray(arrays["item_codes"], np.int64),
        np.load(build.folder("encode") / "text.npy")[order],
        msgspec.msgpack.decode((folder / CATALOGUE).read_bytes(), type=Catalogue),
    )


def _build_first(build: Build) -> str:
    return f"Run `./beforehand build --data {build.name}` to its end first."


def publish_grown(
    base: Base,
    grown: Grown,
    arrays: Mapping[str, NDArray[np.generic]],
    items: pl.DataFrame,
    categories: list[str],
) -> tuple[str, bool]:
    """Sign and register it; returns its id and whether it is new. ``from_parent.npy`` int64 [items of the parent] has
    the number of each item of the release that was the newest of this build's before."""
    ids = _among(base.catalogue.item_ids, items["item_id"].to_list(), grown)
    titles = _among(base.catalogue.titles, items["title"].to_list(), grown)
    parent = newest_release(base.id)
    content = base.manifest.content
    parts = Parts(
        model=msgspec.structs.replace(content.model, num_items=len(grown.codes)),
        graphs=base.folder,
        arrays={**arrays, "from_parent": _places(catalogue_of(parent).item_ids, ids)},
        catalogue=Catalogue(ids, titles, categories),
        profiles=msgspec.msgpack.decode((base.folder / PROFILES).read_bytes(), type=Profiles),
        report=_report(base) | {"inserted": {"into": base.id, "parent": parent.id, "items": len(items)}},
        metrics=base.manifest.metrics,
        input_hash=content.input_hash,
        parents=[*content.parents, parent.id],
    )
    key = load_private_key(private_key_path())
    manifest = make_release(releases_dir(), parts, key)
    verify_files(releases_dir() / manifest.id, manifest)
    ensure_page(releases_dir() / manifest.id, manifest)
    row = ReleaseRow(
        manifest.id,
        str(releases_dir() / manifest.id),
        content.input_hash,
        manifest.metrics,
        Status.FUTURE,
        manifest.made_at,
    )
    return manifest.id, Registry().publish(row, why=f"{len(items)} items inserted into {base.id}")


def inserted_into(folder: Path) -> str | None:
    """The release that the one in ``folder`` was grown from; None for one that a build made."""
    try:
        report: dict[str, Any] = msgspec.json.decode((folder / REPORT).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return report.get("inserted", {}).get("into")


def newest_release(base: str) -> ReleaseRow:
    """The current release when it grew from ``base``, else ``base``."""
    registry = Registry()
    current = registry.current()
    return current if current and inserted_into(Path(current.path)) == base else registry.get(base)


def catalogue_of(row: ReleaseRow) -> Catalogue:
    """The items of a release."""
    return msgspec.msgpack.decode((Path(row.path) / CATALOGUE).read_bytes(), type=Catalogue)


def _report(base: Base) -> dict[str, Any]:
    return msgspec.json.decode((base.folder / REPORT).read_bytes())


def _among(old: list[str], new: list[str], grown: Grown) -> list[str]:
    out = [""] * len(grown.codes)
    for places, names in ((grown.old, old), (grown.new, new)):
        for place, name in zip(places.tolist(), names, strict=True):
            out[place] = name
    return out


def _places(before: list[str], now: list[str]) -> Ints:
    place = {item: number for number, item in enumerate(now)}
    return np.array([place[item] for item in before], np.int64)
