"""Makes a release: a signed directory named by the hash of what is in it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from schemas.graphs import DECODER, INTENT_ENCODER, INTENT_STEP, PROMPT_ENCODER
from schemas.lineage import LINEAGE, Lineage
from schemas.release import (
    ARRAYS,
    CATALOGUE,
    MANIFEST,
    PROFILES,
    REPORT,
    Catalogue,
    Content,
    Manifest,
    Model,
    Profiles,
    content_id,
    file_entry,
    write_manifest,
)

OPSET = 20
"""Of the graphs (``offline.export``). Here, because torch takes seconds to import."""
MINIMUM_RUNTIMES = {"onnxruntime": "1.20", "opset": str(OPSET)}


class Parts(msgspec.Struct, kw_only=True):
    """What a release is made of. ``graphs`` is the folder that holds the ONNX files."""

    model: Model
    graphs: Path
    arrays: Mapping[str, np.ndarray]
    catalogue: Catalogue
    profiles: Profiles
    report: Mapping[str, object]
    metrics: dict[str, float]
    input_hash: str
    parents: list[str] = []
    lineage: Lineage | None = None  # of a release that grew by insertion


def make_release(parent: Path, parts: Parts, key: Ed25519PrivateKey, *, made_at_ms: int | None = None) -> Manifest:
    """Write ``parent/<id>``; a release that is already there is left as it is.

    The folder appears whole or not at all: it is written under another name and then renamed.
    """
    parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=parent))
    try:
        _write_files(draft, parts)
        files = {
            path.relative_to(draft).as_posix(): file_entry(path) for path in sorted(draft.rglob("*")) if path.is_file()
        }
        content = Content(
            model=parts.model,
            files=files,
            minimum_runtimes=MINIMUM_RUNTIMES,
            parents=parts.parents,
            input_hash=parts.input_hash,
        )
        made_at = int(time.time() * 1000) if made_at_ms is None else made_at_ms
        manifest = Manifest(id=content_id(content), content=content, metrics=parts.metrics, made_at=made_at)
        write_manifest(draft, manifest, key)
        draft.chmod(0o755)
        if not (parent / manifest.id / MANIFEST).exists():
            draft.rename(parent / manifest.id)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def _write_files(folder: Path, parts: Parts) -> None:
    (folder / ARRAYS).mkdir()
    step = (INTENT_STEP,) if (parts.graphs / INTENT_STEP).exists() else ()
    for name in (INTENT_ENCODER, PROMPT_ENCODER, DECODER, *step):
        shutil.copyfile(parts.graphs / name, folder / name)
    for name, array in sorted(parts.arrays.items()):
        np.save(folder / ARRAYS / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
    (folder / CATALOGUE).write_bytes(msgspec.msgpack.encode(parts.catalogue))
    (folder / PROFILES).write_bytes(msgspec.msgpack.encode(parts.profiles, order="deterministic"))
    if parts.lineage is not None:
        (folder / LINEAGE).write_bytes(msgspec.msgpack.encode(parts.lineage))
    (folder / REPORT).write_bytes(msgspec.json.format(msgspec.json.encode(parts.report, order="sorted"), indent=1))
