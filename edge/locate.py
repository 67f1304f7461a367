"""Where a release is, and its files: for the verbs only. A device has neither."""

from __future__ import annotations

from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from schemas.errors import ReleaseError
from schemas.locations import releases_dir
from schemas.release import MANIFEST, PROFILES, Profiles, read_manifest, verify_files


def find_release(name: str) -> Path:
    """The folder of a release, named by its path or by its id.

    Raises:
        ReleaseError: there is neither.
    """
    for folder in (Path(name), releases_dir() / name):
        if (folder / MANIFEST).is_file():
            return folder
    raise ReleaseError(
        "no such release",
        where="--release",
        value=name,
        mend="Give the folder of a release, or an id that `./beforehand release list` shows.",
    )


def read_verified(folder: Path, key: Ed25519PublicKey, name: str) -> Path:
    """The path of one file of a release, its digest checked.

    Raises:
        ReleaseError: unsigned, missing or damaged.
    """
    manifest = read_manifest(folder, key)
    files = {known: entry for known, entry in manifest.content.files.items() if known == name}
    if not files:
        raise ReleaseError("the release lacks a file", where=str(folder), value=name, mend="Publish it again.")
    content = msgspec.structs.replace(manifest.content, files=files)
    verify_files(folder, msgspec.structs.replace(manifest, content=content))
    return folder / name


def read_profiles(folder: Path, key: Ed25519PublicKey) -> Profiles:
    """The profiles of a release, verified.

    Raises:
        ReleaseError: unsigned, missing or damaged.
    """
    path = read_verified(folder, key, PROFILES)
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Profiles)
    except msgspec.DecodeError as error:
        raise ReleaseError(f"damaged profiles: {error}", where=str(path)) from None
