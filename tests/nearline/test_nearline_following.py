"""Which release the worker encodes with, and when it changes."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from conftest import FIXTURES

from nearline import following
from nearline.following import ReleaseFollower, open_release
from nearline.serving import Serving
from schemas.canary import Split
from schemas.errors import ReleaseError
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import MANIFEST, Content, Manifest, content_id, file_entry, load_private_key, write_manifest


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release_key: Path) -> Registry:
    monkeypatch.setenv("BEFOREHAND_VERIFY_KEY", str(release_key))
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    monkeypatch.setattr(following, "CHECK_EVERY_S", 0)
    return Registry(f"sqlite:///{tmp_path / 'registry.db'}")


def promoted(registry: Registry, folder: Path, path: str | None = None) -> str:
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    registry.publish(ReleaseRow(manifest.id, path or str(folder), "", {}, Status.FUTURE, 0), why="test")
    registry.promote(manifest.id, why="test")
    return manifest.id


def other_release(folder: Path, parent: str = "") -> Path:
    shutil.copytree(FIXTURES / "release", folder)
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    write(folder, manifest, msgspec.structs.replace(manifest.content, parents=[parent or manifest.id]))
    return folder


def write(folder: Path, manifest: Manifest, content: Content) -> None:
    key = load_private_key(FIXTURES / "release.pem")
    write_manifest(folder, msgspec.structs.replace(manifest, id=content_id(content), content=content), key)


def soon(follower: ReleaseFollower, in_use: Serving) -> Serving | None:
    give_up_at = time.monotonic() + 60
    while time.monotonic() < give_up_at:
        if (found := follower.newer(in_use)) is not None:
            return found
        time.sleep(0.02)
    return None


def stays(follower: ReleaseFollower, in_use: Serving) -> bool:
    """Whether a few looks find nothing to change."""
    for _ in range(5):
        if follower.newer(in_use) is not None:
            return False
        time.sleep(0.02)
    return True


def refusals(follower: ReleaseFollower, in_use: Serving, capsys: pytest.CaptureFixture[str]) -> int:
    """How often it says that a release is not used: waits for the first time, then looks a few times more."""
    said, give_up_at = "", time.monotonic() + 60
    while "is not used" not in said:
        assert time.monotonic() < give_up_at, "nothing was refused"
        assert stays(follower, in_use)
        said += capsys.readouterr().err
    assert stays(follower, in_use)
    return (said + capsys.readouterr().err).count("is not used")


def test_it_starts_with_the_current_release(registry: Registry, release_folder: Path) -> None:
    promoted_id = promoted(registry, release_folder)
    follower = ReleaseFollower(registry)
    first = follower.first()
    assert first.split == Split(promoted_id)
    assert stays(follower, first)


def test_a_relative_path_is_taken_from_the_releases_folder(registry: Registry, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "release", tmp_path / "releases" / "here")
    promoted_id = promoted(registry, FIXTURES / "release", "here")
    assert ReleaseFollower(registry).first().split == Split(promoted_id)


def test_without_a_release_it_says_how_to_get_one(registry: Registry) -> None:
    with pytest.raises(ReleaseError, match="build"):
        ReleaseFollower(registry).first()


def test_it_follows_a_promotion(registry: Registry, release_folder: Path, tmp_path: Path) -> None:
    before = promoted(registry, release_folder)
    follower = ReleaseFollower(registry)
    first = follower.first()
    after = promoted(registry, other_release(tmp_path / "next"))
    found = soon(follower, first)
    assert found is not None
    assert found.split.current == after != before
    assert found.canary is None
    follower.close()


def test_a_release_that_loads_but_gives_no_numbers_is_refused(
    registry: Registry, release_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(release_folder, tmp_path / "nan"))
    path = folder / "arrays" / "item_in.npy"
    np.save(path, np.full_like(np.load(path), np.nan))
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    files = {name: file_entry(folder / name) for name in manifest.content.files}
    write(folder, manifest, msgspec.structs.replace(manifest.content, files=files))
    with pytest.raises(ReleaseError, match="not finite"):
        open_release(folder)


def test_a_pinned_release_stays(registry: Registry, release_folder: Path, tmp_path: Path) -> None:
    pinned = promoted(registry, release_folder)
    promoted(registry, other_release(tmp_path / "next"))
    follower = ReleaseFollower(registry, pinned)
    first = follower.first()
    assert first.split == Split(pinned)
    assert stays(follower, first)
    with pytest.raises(ReleaseError, match="no such release"):
        ReleaseFollower(registry, "nope").first()


def test_a_release_that_does_not_load_is_reported_once_and_the_old_one_stays(
    registry: Registry, release_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promoted(registry, release_folder)
    follower = ReleaseFollower(registry)
    first = follower.first()
    broken = other_release(tmp_path / "next")
    (broken / "decoder.onnx").unlink()
    promoted(registry, broken)
    assert refusals(follower, first, capsys) == 1
    # a good one after it is used
    good = promoted(registry, other_release(tmp_path / "good", "another"))
    found = soon(follower, first)
    assert found is not None
    assert found.split == Split(good)
    follower.close()


def published(registry: Registry, folder: Path) -> str:
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    registry.publish(ReleaseRow(manifest.id, str(folder), "", {}, Status.FUTURE, 0), why="test")
    return manifest.id


def test_it_follows_a_canary_as_it_begins_grows_and_ends(
    registry: Registry, release_folder: Path, tmp_path: Path
) -> None:
    current = promoted(registry, release_folder)
    follower = ReleaseFollower(registry)
    serving = follower.first()
    tried = published(registry, other_release(tmp_path / "next"))
    for share in (0.1, 0.5):
        registry.canary(tried, share, why="test")
        found = soon(follower, serving)
        assert found is not None
        assert found.split == Split(current, tried, share)
        assert ReleaseFollower(registry).first().split == found.split, "a worker that starts now agrees"
        serving = found
    before = serving.canary
    registry.promote(tried, why="test")
    found = soon(follower, serving)
    assert found is not None
    assert found.split == Split(tried)
    assert found.current is before, "it is not loaded twice"
    follower.close()


def test_a_canary_that_does_not_load_has_no_users(
    registry: Registry, release_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    current = promoted(registry, release_folder)
    follower = ReleaseFollower(registry)
    serving = follower.first()
    folder = other_release(tmp_path / "next")
    tried = published(registry, folder)
    (folder / "decoder.onnx").unlink()
    registry.canary(tried, 0.5, why="test")
    assert refusals(follower, serving, capsys) == 1
    assert ReleaseFollower(registry).first().split == Split(current)
    follower.close()
