"""Releases in an object store, by fsspec: a folder, S3 or what else it knows.

The signature goes last, so a release that is only half there is none.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
from fsspec.core import url_to_fs

from schemas import cli
from schemas.errors import ReleaseError, StoreError
from schemas.locations import public_key_path, releases_dir
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import MANIFEST, SIGNATURE, Manifest, load_public_key, read_manifest, verify_files

VARIABLE = "BEFOREHAND_STORE"


class Store:
    """``url`` holds a folder for each release, by its id.

    Raises:
        StoreError: no address, or a kind of store whose driver is not installed.
    """

    def __init__(self, url: str = "") -> None:
        self.url = url or os.environ.get(VARIABLE, "")
        if not self.url:
            mend = f"Give --store URL or set ${VARIABLE}, as in s3://bucket/releases."
            raise StoreError("no object store is named", where=VARIABLE, mend=mend)
        try:
            found = url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise StoreError(f"it can't be opened: {error}", where=self.url, mend="See fsspec's kinds.") from None
        self._fs: fsspec.AbstractFileSystem = found[0]
        self._root: str = found[1].rstrip("/")

    def push(self, folder: Path, manifest: Manifest) -> bool:
        """Copy a verified release; False when it is there already. Raises StoreError when the store fails."""
        place = f"{self._root}/{manifest.id}"
        with _told(self.url):
            self._fs.invalidate_cache()
            if self._fs.exists(f"{place}/{SIGNATURE}"):
                return False
            for name in cli.track([*manifest.content.files, MANIFEST, SIGNATURE], "copying"):
                self._fs.makedirs(f"{place}/{name}".rpartition("/")[0], exist_ok=True)
                self._fs.put_file(str(folder / name), f"{place}/{name}")
        return True

    def fetch(self, release_id: str) -> Manifest:
        """Copy a release here, verify it, register it as *future*. One that is here already is left as it is.

        Raises:
            ReleaseError: it is not in the store, or is damaged or not signed by our key.
            StoreError: the store fails.
        """
        key = load_public_key(public_key_path())
        final = releases_dir() / release_id
        if not (final / SIGNATURE).exists():
            releases_dir().mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=releases_dir()))
            try:
                self._download(release_id, draft)
                verify_files(draft, _checked(release_id, read_manifest(draft, key)))
                draft.chmod(0o755)
                draft.rename(final)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        manifest = read_manifest(final, key)
        content = manifest.content
        row = ReleaseRow(release_id, str(final), content.input_hash, manifest.metrics, Status.FUTURE, manifest.made_at)
        Registry().publish(row, why=f"fetched from {self.url}")
        return manifest

    def remove(self, release_id: str) -> bool:
        """Delete it there, the signature first; False when it is not there."""
        place = f"{self._root}/{release_id}"
        with _told(self.url):
            if not self._fs.exists(place):
                return False
            if self._fs.exists(f"{place}/{SIGNATURE}"):
                self._fs.rm_file(f"{place}/{SIGNATURE}")
            self._fs.rm(place, recursive=True)
        return True

    def ids(self) -> list[str]:
        """The releases that are whole there."""
        with _told(self.url):
            if not self._fs.exists(self._root):
                return []
            self._fs.invalidate_cache()
            found = self._fs.glob(f"{self._root}/*/{SIGNATURE}")
        return sorted(str(path).split("/")[-2] for path in found)

    def _download(self, release_id: str, draft: Path) -> None:
        place = f"{self._root}/{release_id}"
        with _told(self.url):
            if not self._fs.exists(f"{place}/{SIGNATURE}"):
                mend = "See `./beforehand release store`."
                raise ReleaseError("no such release in the store", where=f"{self.url}/{release_id}", mend=mend)
            for path in cli.track(self._fs.find(place), "copying"):
                local = (draft / path[len(place) + 1 :]).resolve()
                if not local.is_relative_to(draft.resolve()):
                    raise ReleaseError("a file outside the release", where=place, value=path)
                local.parent.mkdir(parents=True, exist_ok=True)
                self._fs.get_file(path, str(local))


def _checked(release_id: str, manifest: Manifest) -> Manifest:
    if manifest.id != release_id:
        raise ReleaseError("it is another release", where=release_id, value=manifest.id)
    return manifest


@contextmanager
def _told(url: str) -> Iterator[None]:
    """What the store's driver raises becomes a StoreError with its address.

    Drivers raise OSError for what the store refuses; where botocore can't even ask, it raises errors of its own.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or type(error).__module__.startswith("botocore"):
            raise StoreError(f"the store failed: {error}", where=url, mend="Check its address and rights.") from None
        raise
