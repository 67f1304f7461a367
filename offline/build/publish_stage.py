"""Stages ``publish`` and ``promote``: from files to a signed, registered release, and to the current one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from offline.build.catalogue import read_index
from offline.build.evaluate_stage import REPORT
from offline.build.export_stage import read_arrays, sizes
from offline.build.gate import check_gate
from offline.build.inserted_release import inserted_into
from offline.build.kept import keep_for_insertion
from offline.build.report_page import ensure_page
from offline.build.stage import Build, Result
from offline.histories import read_buckets
from offline.release_folder import Parts, make_release
from schemas.locations import private_key_path, releases_dir
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import Catalogue, Profiles, load_private_key, read_manifest, verify_files


def publish(build: Build, _folder: Path) -> Result:
    """Sign, verify and register; the same inputs give the same release."""
    key = load_private_key(private_key_path(), create=True)
    manifest = make_release(releases_dir(), _parts(build), key)
    path = releases_dir() / manifest.id
    manifest = read_manifest(path, key.public_key())
    verify_files(path, manifest)
    ensure_page(path, manifest)
    row = ReleaseRow(
        manifest.id, str(path), manifest.content.input_hash, manifest.metrics, Status.FUTURE, manifest.made_at
    )
    keep_for_insertion(build, manifest.id)
    new = Registry().publish(row, why=f"built from {build.name}")
    return {"release": manifest.id, "new": new, "says": f"{manifest.id}{'' if new else ' (was there)'}"}


def promote(build: Build, _folder: Path) -> Result:
    """Make it current, if it passes the gate."""
    release = build.result("publish")["release"]
    registry = Registry()
    says = check_gate(build.plan.gate, registry, release, build.name)
    changed = registry.promote(release, why=f"build of {build.name}")
    return {"release": release, "changed": changed, "says": f"{release} is current{says}"}


def published(result: Result) -> bool:
    """Whether the release is still there, whole enough, and known."""
    known = {row.id for row in Registry().all()}
    return result["release"] in known and (releases_dir() / result["release"] / "manifest.sig").is_file()


def is_current(result: Result) -> bool:
    """Whether it still is the current one, or the one that is had items inserted into it."""
    current = Registry().current()
    return current is not None and result["release"] in (current.id, inserted_into(Path(current.path)))


def _parts(build: Build) -> Parts:
    index, buckets = read_index(build), read_buckets(build.data)
    lists = {name: build.folder("lists") / f"{name}.npy" for name in ("cohort_items", "cohort_scores")}
    arrays = read_arrays(build) | {"neighbour_items": index.lists.items, "neighbour_scores": index.lists.scores}
    report = msgspec.json.decode((build.folder("evaluate") / REPORT).read_bytes())
    graphs = build.result("export")["graphs"]
    # Times differ from run to run: they stand beside the content that the release is named after, not in it.
    report["graphs"] = [{key: value for key, value in one.items() if key != "ms"} for one in graphs]
    times = {f"{Path(one['graph']).stem}_{one['kind']}_ms": one["ms"] for one in graphs if not one["failed"]}
    return Parts(
        model=sizes(build),
        graphs=build.folder("export"),
        arrays=arrays | {name: np.load(path) for name, path in lists.items()},
        catalogue=Catalogue(index.catalogue["item_id"].to_list(), index.catalogue["title"].to_list(), index.categories),
        profiles=Profiles(buckets.names, buckets.users),
        report=report,
        metrics=report["metrics"] | times,
        input_hash=build.records["export"].hash,
        parents=[build.records[stage].hash for stage in ("index", "train")],
    )
