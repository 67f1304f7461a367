"""Where a release is, and its profiles: for the verbs only. A device has neither."""

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


def read_profiles(folder: Path, key: Ed25519PublicKey) -> Profiles:
    """The profiles of a release, verified.

    Raises:
        ReleaseError: unsigned, missing or damaged.
    """
    manifest = read_manifest(folder, key)
    files = {name: entry for name, entry in manifest.content.files.items() if name == PROFILES}
    if not files:
        raise ReleaseError("the release lacks a file", where=str(folder), value=PROFILES, mend="Publish it again.")
    content = msgspec.structs.replace(manifest.content, files=files)
    verify_files(folder, msgspec.structs.replace(manifest, content=content))
    try:
        return msgspec.msgpack.decode((folder / PROFILES).read_bytes(), type=Profiles)
    except msgspec.DecodeError as error:
        raise ReleaseError(f"damaged profiles: {error}", where=str(folder / PROFILES)) from None
