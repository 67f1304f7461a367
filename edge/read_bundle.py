"""Read a bundle from its folder, as an SDK reads it over HTTP: nothing is believed before it is verified."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from edge.bundle import Bundle, BundleError, Sizes
from edge.code_table import CodeTable, Shard
from edge.envelope import read_envelope
from edge.layout import DEFAULTS, MANIFEST, MODEL, BundleManifest, shard_name
from edge.names import BundleReason
from edge.rollout import version
from schemas.release import FileEntry, file_entry

MAX_BYTES = 64 * 1024**2


def read_bundle(folder: Path, keys: Sequence[Ed25519PublicKey], max_bytes: int = MAX_BYTES) -> Bundle:
    """The bundle in ``folder`` (named by its id).

    Raises:
        BundleError: its reason says what is wrong; ``edge.names.BundleReason``.
    """
    where = folder / MANIFEST
    manifest = read_envelope(where, keys, BundleManifest)
    content = manifest.content
    if manifest.id != folder.name:
        raise BundleError(BundleReason.CORRUPT, "the manifest of another bundle", where=str(where), value=manifest.id)
    needed, installed = content.minimum_runtimes.get("onnxruntime", "0"), metadata.version("onnxruntime")
    if version(installed) < version(needed):
        problem = f"needs onnxruntime {needed} or newer"
        raise BundleError(BundleReason.RUNTIME_TOO_OLD, problem, where=str(where), value=installed)
    shards = [shard_name(number) for number in range(content.tail_shards + 1)]
    raw = _read(folder, content.files, [MODEL, DEFAULTS, *shards], max_bytes)
    sizes = content.sizes
    return Bundle(
        release=content.release,
        sizes=sizes,
        made_at_ms=content.made_at,
        graph=raw[MODEL],
        codes=CodeTable([Shard(raw[name], sizes.levels, f"{folder}/{name}") for name in shards]),
        prompt_defaults=_defaults(raw[DEFAULTS], sizes, f"{folder}/{DEFAULTS}"),
        buckets=tuple(content.buckets),
        usable_for_s=content.usable_for_s,
        prompt_usable_for_s=content.prompt_usable_for_s,
    )


def _read(folder: Path, files: dict[str, FileEntry], names: list[str], max_bytes: int) -> dict[str, bytes]:
    missing = [name for name in names if name not in files]
    if missing:
        raise BundleError(BundleReason.CORRUPT, "the manifest lacks files", where=str(folder), value=missing)
    size_bytes = sum(files[name].num_bytes for name in names)
    if size_bytes > max_bytes:
        raise BundleError(BundleReason.TOO_LARGE, f"more than {max_bytes} bytes", where=str(folder), value=size_bytes)
    for name in names:
        path = folder / name
        if not path.is_file():
            raise BundleError(BundleReason.UNREACHABLE, "the file is missing", where=str(path))
        if file_entry(path) != files[name]:
            raise BundleError(BundleReason.CORRUPT, "the file differs from the manifest", where=str(path))
    return {name: (folder / name).read_bytes() for name in names}


def _defaults(raw: bytes, sizes: Sizes, where: str) -> np.ndarray:
    shape = (sizes.num_buckets, sizes.prompt_rows, sizes.width)
    if len(raw) != 4 * shape[0] * shape[1] * shape[2]:
        raise BundleError(BundleReason.CORRUPT, f"not float32 {list(shape)}", where=where, value=len(raw))
    rows = np.frombuffer(raw, "<f4").reshape(shape)
    if not np.isfinite(rows).all():
        raise BundleError(BundleReason.CORRUPT, "default rows that are not finite", where=where)
    return rows
