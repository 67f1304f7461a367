"""What a device needs of a release, read from the release itself: the graph, item ids, codes, default rows."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from numpy.typing import NDArray

from edge.bundle import Bundle, Sizes
from edge.rollout import version
from schemas.errors import ReleaseError
from schemas.graphs import PROMPT_ENCODER
from schemas.release import ARRAYS, CATALOGUE, Manifest, Model, read_manifest, verify_files

ITEM_CODES = f"{ARRAYS}/item_codes.npy"
PROMPT_DEFAULTS = f"{ARRAYS}/prompt_defaults.npy"
FILES = (PROMPT_ENCODER, CATALOGUE, ITEM_CODES, PROMPT_DEFAULTS)
MAX_BYTES = 256 * 1024**2


class _ItemIds(msgspec.Struct, frozen=True):
    """The part of ``Catalogue`` that the device reads."""

    item_ids: list[str]


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseParts:
    """The parts of a release that its bundle is made from. The arrays are memory-mapped and read-only."""

    manifest: Manifest
    graph: bytes  # prompt_encoder.onnx
    item_ids: list[str]  # by item number
    item_codes: NDArray[np.int64]  # [N, L]
    prompt_defaults: NDArray[np.float32]  # [buckets, P, d]

    def as_bundle(self) -> Bundle:
        """The release as a device would see it, its graph as it was exported."""
        numbers = {item_id: number for number, item_id in enumerate(self.item_ids)}

        def codes(item_id: str) -> NDArray[np.int64] | None:
            number = numbers.get(item_id)
            return None if number is None else self.item_codes[number]

        sizes = sizes_of(self.manifest.content.model)
        return Bundle(self.manifest.id, sizes, self.manifest.made_at, self.graph, codes, self.prompt_defaults)


def sizes_of(model: Model) -> Sizes:
    """What a device needs to know of the sizes."""
    return msgspec.convert(model, Sizes, from_attributes=True)


def read_release(folder: Path, key: Ed25519PublicKey, max_bytes: int = MAX_BYTES) -> ReleaseParts:
    """Read a release's folder; the signature and the digests of the files it uses are checked first.

    Args:
        folder: the release.
        key: what it must be signed with.
        max_bytes: size of the files used, above which it is refused before any of them is read.

    Raises:
        ReleaseError: unsigned, damaged, incomplete, too large, or made for a newer onnxruntime.
    """
    manifest = read_manifest(folder, key)
    _check_runtime(folder, manifest)
    _check_files(folder, manifest, max_bytes)
    model = manifest.content.model
    item_ids = _item_ids(folder / CATALOGUE, model.num_items)
    item_codes = _array(folder / ITEM_CODES, (model.num_items, model.levels), np.dtype(np.int64))
    defaults = _array(
        folder / PROMPT_DEFAULTS, (model.num_buckets, model.prompt_rows, model.width), np.dtype(np.float32)
    )
    if not np.isfinite(defaults).all():
        raise ReleaseError("default rows that are not finite", where=str(folder / PROMPT_DEFAULTS))
    graph = (folder / PROMPT_ENCODER).read_bytes()
    return ReleaseParts(manifest, graph, item_ids, item_codes, defaults)


def _check_runtime(folder: Path, manifest: Manifest) -> None:
    needed = manifest.content.minimum_runtimes.get("onnxruntime", "0")
    installed = metadata.version("onnxruntime")
    if version(installed) < version(needed):
        raise ReleaseError(
            f"needs onnxruntime {needed} or newer",
            where=str(folder),
            value=installed,
            mend="Upgrade the runtime of this device.",
        )


def _check_files(folder: Path, manifest: Manifest, max_bytes: int) -> None:
    files = manifest.content.files
    for name in FILES:
        if name not in files:
            raise ReleaseError("the release lacks a file", where=str(folder), value=name, mend="Publish it again.")
    used = {name: files[name] for name in FILES}
    size_bytes = sum(entry.num_bytes for entry in used.values())
    if size_bytes > max_bytes:
        raise ReleaseError(
            f"more than {max_bytes} bytes for a device",
            where=str(folder),
            value=size_bytes,
            mend="Raise max_bytes, or build with a smaller catalogue.",
        )
    content = msgspec.structs.replace(manifest.content, files=used)
    verify_files(folder, msgspec.structs.replace(manifest, content=content))


def _item_ids(path: Path, num_items: int) -> list[str]:
    try:
        item_ids = msgspec.msgpack.decode(path.read_bytes(), type=_ItemIds).item_ids
    except msgspec.DecodeError as error:
        raise ReleaseError(f"damaged catalogue: {error}", where=str(path), mend="Publish it again.") from None
    if len(item_ids) != num_items:
        raise ReleaseError(f"not the {num_items} items of the manifest", where=str(path), value=len(item_ids))
    return item_ids


def _array(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ReleaseError(f"not an array: {error}", where=str(path), mend="Publish it again.") from None
    if array.shape != shape or array.dtype != dtype:
        raise ReleaseError(f"not {dtype} {list(shape)}", where=str(path), value=f"{array.dtype} {list(array.shape)}")
    return array
