"""A release as the near-line tier holds it: sessions, memory-mapped arrays, and the look-ups by id."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from schemas.errors import ReleaseError
from schemas.graphs import DECODER, ENCODER_ARRAYS, INTENT_ENCODER, INTENT_STEP, decoder_arrays
from schemas.lineage import LINEAGE, Family, read_lineage
from schemas.locations import public_key_path, releases_dir
from schemas.registry import ReleaseRow
from schemas.release import (
    ARRAYS,
    CATALOGUE,
    PROFILES,
    UNKNOWN_BUCKET,
    Catalogue,
    Manifest,
    Model,
    Profiles,
    load_public_key,
    read_manifest,
    verify_files,
)

Array = NDArray[Any]
T = TypeVar("T")
_raised: dict[str, Any] = vars(importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state"))
RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    *(one for one in _raised.values() if isinstance(one, type) and issubclass(one, Exception)),
)
"""What loading or running a graph raises: onnxruntime's own errors share no base class."""
NEIGHBOUR_ARRAYS = ("neighbour_items", "neighbour_scores")


@dataclass(frozen=True)
class Release:
    """What encoding and candidate lists need of one release. Its files are read-only and must stay where they are."""

    manifest: Manifest
    encoder: Any  # onnxruntime.InferenceSession
    decoder: Any
    arrays: Mapping[str, Array]  # by name, memory-mapped
    item_number: Mapping[str, int]  # item id → number
    users: Mapping[str, int]  # user id → profile bucket
    family: Family | None = None  # of a release that grew by insertion
    step: Any = None  # InferenceSession of intent_step.onnx, of a release with a long window

    @property
    def id(self) -> str:
        return self.manifest.id

    @property
    def model(self) -> Model:
        return self.manifest.content.model

    def takes_over(self, release_id: str) -> bool:
        """Whether it grew from that release by insertion: readers use the other's states as its own."""
        return self.family is not None and release_id in self.family.ancestors

    def bucket(self, user_id: str) -> int:
        """The user's profile bucket; 0, everybody, when nothing is known."""
        bucket = self.users.get(user_id, UNKNOWN_BUCKET)
        return bucket if 0 <= bucket < self.model.num_buckets else UNKNOWN_BUCKET


def release_folder(row: ReleaseRow) -> Path:
    """Where a registered release is: its path, taken from the releases folder when it is relative."""
    return releases_dir() / row.path


def load_release(folder: Path, public_key: Path | None = None) -> Release:
    """Check and open the release in ``folder``.

    Raises:
        ReleaseError: not signed with ``public_key`` (by default the configured one), damaged, made for a newer
            runtime, or with a graph or an array that does not fit the manifest.
    """
    manifest = read_manifest(folder, load_public_key(public_key or public_key_path()))
    _check_runtime(folder, manifest)
    verify_files(folder, manifest)
    model = manifest.content.model
    names = (
        *ENCODER_ARRAYS,
        *NEIGHBOUR_ARRAYS,
        "prompt_defaults",
        *decoder_arrays(model.levels, manifest.content.files),
    )
    catalogue = _decode(folder / CATALOGUE, Catalogue)
    if len(catalogue.item_ids) != model.num_items:
        raise ReleaseError(
            f"the catalogue has {len(catalogue.item_ids)} items, the manifest says {model.num_items}",
            where=str(folder / CATALOGUE),
            mend="Publish the release again.",
        )
    arrays = {name: _array(folder / ARRAYS / f"{name}.npy") for name in names}
    _check_shapes(folder, model, arrays)
    return Release(
        manifest=manifest,
        encoder=_session(folder / INTENT_ENCODER),
        decoder=_session(folder / DECODER),
        arrays=arrays,
        item_number={item: number for number, item in enumerate(catalogue.item_ids)},
        users=_decode(folder / PROFILES, Profiles).users,
        family=_family(folder, manifest),
        step=_session(folder / INTENT_STEP) if INTENT_STEP in manifest.content.files else None,
    )


def _family(folder: Path, manifest: Manifest) -> Family | None:
    path = folder / LINEAGE
    return Family(read_lineage(path.read_bytes(), str(path))) if LINEAGE in manifest.content.files else None


def _session(path: Path) -> Any:
    runtime: Any = onnxruntime
    options: Any = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except RUNTIME_ERRORS as error:
        raise ReleaseError(f"the graph does not load: {error}", where=str(path), mend="Build it again.") from None


def _array(path: Path) -> Array:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ReleaseError(f"not an array: {error}", where=str(path), mend="Publish the release again.") from None


def _check_shapes(folder: Path, model: Model, arrays: Mapping[str, Array]) -> None:
    expected = {
        "item_in": (model.num_items + 1, model.width),
        "neighbour_items": (model.num_items, arrays["neighbour_items"].shape[1]),
        "neighbour_scores": arrays["neighbour_items"].shape,
        "prompt_defaults": (model.num_buckets, model.prompt_rows, model.width),
    }
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise ReleaseError(
                f"the shape is {arrays[name].shape}, the manifest says {shape}",
                where=str(folder / ARRAYS / f"{name}.npy"),
                mend="Publish the release again.",
            )


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ReleaseError(f"can't be read: {error}", where=str(path), mend="Publish the release again.") from None


def _check_runtime(folder: Path, manifest: Manifest) -> None:
    needed = manifest.content.minimum_runtimes.get("onnxruntime", "0")
    if _version(onnxruntime.__version__) < _version(needed):
        raise ReleaseError(
            f"needs onnxruntime {needed}, this tier has {onnxruntime.__version__}",
            where=str(folder),
            mend="Upgrade this tier first, or export the release for an older runtime.",
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
