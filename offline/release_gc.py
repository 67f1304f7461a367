"""Which releases may be deleted, and deleting them: never what serves, may serve again, or is reported in use."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import msgspec

from offline.build.accounts import size_of
from offline.release_store import Store
from schemas.errors import StoreError
from schemas.locations import releases_dir
from schemas.registry import Pointer, Registry, ReleaseRow, Status

WAIT_S = 5.0


def removable(
    rows: Sequence[ReleaseRow], pointer: Pointer, in_use: Iterable[str], *, keep: int, made_before_ms: int
) -> list[ReleaseRow]:
    """Of ``rows`` those that may go: not current, backup or canary, not in use, not one of the ``keep`` newest others,
    and made before ``made_before_ms``. Newest first."""
    protected = {*pointer.kept, *in_use}
    others = [row for row in sorted(rows, key=lambda row: -row.made_at) if row.id not in protected]
    serving = (Status.CURRENT, Status.BACKUP)
    return [row for row in others[keep:] if row.made_at < made_before_ms and row.status not in serving]


def reported(urls: Iterable[str]) -> set[str]:
    """The releases that the services at ``urls`` have loaded.

    Raises:
        StoreError: one does not answer; what it uses is not known, so nothing may be deleted.
    """
    found: set[str] = set()
    for url in urls:
        try:
            with urlopen(f"{url.rstrip('/')}/v1/releases", timeout=WAIT_S) as answer:  # noqa: S310 - the operator's own
                said = msgspec.json.decode(answer.read(), type=dict[str, object])
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise StoreError(
                f"it does not say what it serves: {error}",
                where=url,
                mend="Start it, or leave it out with --url of those that run.",
            ) from None
        found |= {str(said[key]) for key in ("current", "previous", "canary") if said.get(key)}
    return found


def remove(registry: Registry, row: ReleaseRow, store: Store | None, *, why: str) -> int:
    """Delete one; returns the bytes freed here. The registry forgets it first, so nobody can promote what is going.

    Raises:
        ReleaseError: it serves by now.
    """
    registry.remove(row.id, why=why)
    folder: Path = releases_dir() / row.path
    num_bytes = size_of(folder) if folder.is_dir() else 0
    shutil.rmtree(folder, ignore_errors=True)
    if store is not None:
        store.remove(row.id)
    return num_bytes
