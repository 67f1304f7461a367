"""Loading a release: what is checked before anything is encoded with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from nearline.release import Release, load_release
from schemas.errors import ReleaseError
from schemas.release import MANIFEST, Manifest, load_private_key, write_manifest


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
    manifest = msgspec.json.decode((copy / MANIFEST).read_bytes(), type=Manifest)
    content = msgspec.structs.replace(manifest.content, minimum_runtimes={"onnxruntime": "99.1"})
    _sign_again(copy, msgspec.structs.replace(manifest, content=content), release_key)
    with pytest.raises(ReleaseError, match=r"99\.1"):
        load_release(copy, release_key)


def _sign_again(folder: Path, manifest: Manifest, release_key: Path) -> None:
    from schemas.release import content_id

    key = load_private_key(release_key.with_suffix(".pem"))
    write_manifest(folder, msgspec.structs.replace(manifest, id=content_id(manifest.content)), key)
