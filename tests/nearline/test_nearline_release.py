"""Loading a release: what is checked before anything is encoded with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from nearline.release import Release, load_release
from schemas.errors import ReleaseError
from schemas.release import (
    CATALOGUE,
    MANIFEST,
    Catalogue,
    Manifest,
    content_id,
    file_entry,
    load_private_key,
    write_manifest,
)


@pytest.fixture
def copy(release_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(release_folder, tmp_path / "release"))


def test_items_are_numbered_and_arrays_are_mapped(release: Release) -> None:
    assert len(release.item_number) == release.model.num_items
    assert sorted(release.item_number.values()) == list(range(release.model.num_items))
    assert all(isinstance(array, np.memmap) for array in release.arrays.values())


def test_a_user_without_a_profile_is_everybody(release: Release) -> None:
    assert release.bucket("nobody knows me") == 0


def test_a_changed_file_is_refused_by_name(copy: Path, release_key: Path) -> None:
    path = copy / "arrays" / "item_in.npy"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ReleaseError, match=r"item_in\.npy"):
        load_release(copy, release_key)


def test_another_signature_is_refused(copy: Path, release_key: Path) -> None:
    (copy / "manifest.sig").write_bytes(b"\0" * 64)
    with pytest.raises(ReleaseError, match="signature"):
        load_release(copy, release_key)


def test_a_release_for_a_newer_runtime_is_refused(copy: Path, release_key: Path) -> None:
    sign_again(copy, release_key, minimum_runtimes={"onnxruntime": "99.1"})
    with pytest.raises(ReleaseError, match=r"99\.1"):
        load_release(copy, release_key)


@pytest.mark.parametrize("graph", ["intent_encoder.onnx", "decoder.onnx"])
def test_a_graph_that_does_not_load_is_refused_by_name(copy: Path, release_key: Path, graph: str) -> None:
    (copy / graph).write_bytes(b"not a graph")
    sign_again(copy, release_key)
    with pytest.raises(ReleaseError, match=graph):
        load_release(copy, release_key)


@pytest.mark.parametrize("name", ["item_in", "neighbour_items", "neighbour_scores", "prompt_defaults"])
def test_an_array_of_another_size_is_refused_by_name(copy: Path, release_key: Path, name: str) -> None:
    path = copy / "arrays" / f"{name}.npy"
    np.save(path, np.load(path)[:-1])
    sign_again(copy, release_key)
    with pytest.raises(ReleaseError, match=name):
        load_release(copy, release_key)


def test_an_array_of_objects_is_refused(copy: Path, release_key: Path) -> None:
    np.save(copy / "arrays" / "item_in.npy", np.asarray([{}, []], object))
    sign_again(copy, release_key)
    with pytest.raises(ReleaseError, match="not an array"):
        load_release(copy, release_key)


def test_a_short_catalogue_is_refused(copy: Path, release_key: Path) -> None:
    catalogue = msgspec.msgpack.decode((copy / CATALOGUE).read_bytes(), type=Catalogue)
    shorter = msgspec.structs.replace(catalogue, item_ids=catalogue.item_ids[:-1])
    (copy / CATALOGUE).write_bytes(msgspec.msgpack.encode(shorter))
    sign_again(copy, release_key)
    with pytest.raises(ReleaseError, match="59 items"):
        load_release(copy, release_key)


def sign_again(folder: Path, release_key: Path, **changes: object) -> None:
    """A release as it would have been published with what lies in the folder now."""
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    files = {name: file_entry(folder / name) for name in manifest.content.files}
    content = msgspec.structs.replace(manifest.content, files=files, **changes)
    key = load_private_key(release_key.with_suffix(".pem"))
    write_manifest(folder, msgspec.structs.replace(manifest, id=content_id(content), content=content), key)
