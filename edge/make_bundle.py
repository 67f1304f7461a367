"""``edge bundle``: make what devices download, from a release."""

from __future__ import annotations

import argparse
import gzip
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from numpy.typing import NDArray

from edge import exports, layout
from edge.code_table import make_shards
from edge.envelope import pinned, seal
from edge.exports import Export
from edge.layout import DEFAULTS, MANIFEST, MODEL, MODEL_ORT, BundleManifest, Content, shard_name
from edge.locate import find_release, read_profiles, read_verified
from edge.probes import probes
from edge.read_bundle import read_bundle
from edge.read_release import ReleaseParts, read_release, sizes_of
from schemas import cli
from schemas.errors import ReleaseError
from schemas.locations import private_key_path
from schemas.plan import Plan, load_plan
from schemas.release import ARRAYS, FileEntry, file_entry, load_private_key, load_public_key

COHORT_ITEMS = f"{ARRAYS}/cohort_items.npy"
WORTH_IT = 0.9
"""A file is kept compressed too when that leaves at most this share of it."""
NUM_PROBES = 64


@dataclass(frozen=True)
class Settings:
    """What the plan says of bundles."""

    usable_for_s: float
    prompt_usable_for_s: float
    shard_bytes: int
    first_bytes: int
    max_difference: float

    @classmethod
    def of(cls, plan: Plan) -> Settings:
        """From ``[edge]`` and the assets that a device handles."""
        return cls(
            usable_for_s=float(plan.assets["generator"].usable_for),
            prompt_usable_for_s=float(plan.assets["prompt_embedding"].usable_for),
            shard_bytes=int(plan.edge.shard_bytes),
            first_bytes=int(plan.edge.first_bytes),
            max_difference=plan.edge.max_difference,
        )


@dataclass(frozen=True)
class Source:
    """A release, and the keys: ``verify`` is what it was signed with, ``sign`` signs the bundle."""

    folder: Path
    verify: Ed25519PublicKey
    sign: Ed25519PrivateKey


def make_bundle(source: Source, settings: Settings, out: Path, kind: str | None = None) -> tuple[BundleManifest, bool]:
    """Make ``out/<id>``; the manifest, and whether it is new: equal content is made once and then left as it is.

    Args:
        source: the release.
        settings: bounds and lifetimes.
        out: the folder of all bundles.
        kind: the export to take; by default the fastest within the bounds. ``fp32`` needs no ``onnx``.

    Raises:
        ReleaseError: the release or an export is not fit.
        DataError: two items of one hash.
    """
    release = read_release(source.folder, source.verify)
    feeds = probes(release.as_bundle(), release.item_ids, NUM_PROBES)
    if kind == exports.FP32:
        measured = exports.only_fp32(release.graph, feeds)
    else:
        measured = exports.make_exports(release.graph, feeds, settings.max_difference)
    chosen = exports.choose(measured, kind)
    files = _files(source, release, chosen, settings.shard_bytes)
    _check_first(files, settings.first_bytes)
    part = out / f".{release.manifest.id}.part"
    shutil.rmtree(part, ignore_errors=True)
    write_files(part, files)
    buckets = read_profiles(source.folder, source.verify).buckets
    entries = {name: file_entry(part / name) for name in files}
    content = _content(release, chosen.kind, settings, buckets, entries)
    manifest = BundleManifest(
        id=layout.bundle_id(content), content=content, measured={export.kind: export.measured for export in measured}
    )
    return manifest, _publish(part, out / manifest.id, manifest, source.sign)


def popular(cohort_items: NDArray[np.integer], num_items: int) -> list[int]:
    """All item numbers, the most popular first: everybody's list, then the other buckets' by rank, then the rest."""
    listed = [*cohort_items[0].tolist(), *cohort_items.T.ravel().tolist()]
    known = dict.fromkeys(number for number in listed if 0 <= number < num_items)
    return [*known, *(number for number in range(num_items) if number not in known)]


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write them, each with its ``.gz`` where that is worth it."""
    for name, raw in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
        packed = gzip.compress(raw, mtime=0)
        if len(packed) <= WORTH_IT * len(raw):
            path.with_name(f"{path.name}.gz").write_bytes(packed)


def _files(source: Source, release: ReleaseParts, chosen: Export, shard_bytes: int) -> dict[str, bytes]:
    model = release.manifest.content.model
    cohorts = np.load(read_verified(source.folder, source.verify, COHORT_ITEMS), allow_pickle=False)
    order = popular(cohorts, model.num_items)
    shards = make_shards(release.item_ids, np.asarray(release.item_codes), order, model.codes, shard_bytes)
    return {
        MODEL: chosen.onnx,
        MODEL_ORT: chosen.ort,
        DEFAULTS: np.ascontiguousarray(release.prompt_defaults, "<f4").tobytes(),
        **{shard_name(number): shard for number, shard in enumerate(shards)},
    }


def first_bytes(num_bytes: Mapping[str, int]) -> int:
    """What a device loads before its first embedding: one form of the graph, the default rows, the first shard."""
    return num_bytes[MODEL] + num_bytes[DEFAULTS] + num_bytes[shard_name(0)]


def _check_first(files: Mapping[str, bytes], limit: int) -> None:
    sizes = {name: len(raw) for name, raw in files.items()}
    if first_bytes(sizes) > limit:
        raise ReleaseError(
            f"more than {limit} bytes for a first load",
            where="plan edge.first_bytes",
            value={name: sizes[name] for name in (MODEL, DEFAULTS, shard_name(0))},
            mend="Raise it, lower edge.shard_bytes, or train a smaller prompt encoder.",
        )


def _content(
    release: ReleaseParts, kind: str, settings: Settings, buckets: list[str], files: dict[str, FileEntry]
) -> Content:
    given = release.manifest
    return Content(
        release=given.id,
        made_at=given.made_at,
        graph=kind,
        sizes=sizes_of(given.content.model),
        buckets=buckets,
        files=files,
        tail_shards=sum(name.startswith("codes/") for name in files) - 1,
        minimum_runtimes=given.content.minimum_runtimes,
        usable_for_s=settings.usable_for_s,
        prompt_usable_for_s=settings.prompt_usable_for_s,
    )


def _publish(part: Path, folder: Path, manifest: BundleManifest, key: Ed25519PrivateKey) -> bool:
    """Move the folder to its place, whole. False when it was there already."""
    if (folder / MANIFEST).exists():
        shutil.rmtree(part)
        read_bundle(folder, [key.public_key()])
        return False
    write_files(part, {MANIFEST: seal(manifest, key)})
    part.rename(folder)
    read_bundle(folder, [key.public_key()])
    return True


def bundle(args: argparse.Namespace) -> dict[str, Any]:
    """The verb."""
    sign = load_private_key(private_key_path())
    source = Source(find_release(args.release), load_public_key(args.key), sign)
    out = args.out or layout.bundles_dir()
    with cli.step("bundle") as said:
        manifest, is_new = make_bundle(source, Settings.of(load_plan(None, args.set)), out, args.graph)
        files = {name: entry.num_bytes for name, entry in manifest.content.files.items()}
        was = "" if is_new else ", made before"
        said(f"{manifest.id} ({manifest.content.graph}{was}), {first_bytes(files):,} bytes for a first load")
    cli.say(f"  for the apps to pin: {pinned(sign.public_key())}")
    return {
        "id": manifest.id,
        "new": is_new,
        "release": manifest.content.release,
        "folder": str(out / manifest.id),
        "graph": manifest.content.graph,
        "measured": msgspec.to_builtins(manifest.measured),
        "bundle_bytes": first_bytes(files),
        "total_bytes": sum(files.values()),
        "tail_shards": manifest.content.tail_shards,
        "public_key": pinned(sign.public_key()),
    }
