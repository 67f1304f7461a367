"""The files of bundles, as they lie on disk and as they are served under ``/v1/edge/``.

::

    current.json                what is rolled out to whom: an envelope of ``Current``; short-lived
    <id>/manifest.json          an envelope of ``BundleManifest``; like all below it never changes
    <id>/model.onnx             the prompt encoder: the graph that was chosen
    <id>/model.ort              the same graph in onnxruntime's own format: no parsing, no optimising at the start
    <id>/defaults.bin           float32 little-endian [buckets, P, d]: the default rows
    <id>/codes/0.bin            codes of the most popular items (``edge.code_table``)
    <id>/codes/<n>.bin          codes of the others, n = 1 … tail_shards, by hash: fetched when such an item is met
    <name>.gz                   beside a file that gzip shrinks: to be sent as it is to whoever accepts gzip

An envelope is ``{"key": id of the key, "payload": JSON as text, "signature": base64}``; Ed25519 signs the payload's
UTF-8 bytes. Files are known by their sha256, so that a device that has one from an earlier bundle doesn't fetch it.

Whoever serves this folder sends ``current.json`` with a short max-age and everything else as immutable, each with a
strong ETag (the sha256 in the manifest), and ``Vary: Accept-Encoding`` with the ``.gz`` files.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from edge.bundle import Sizes
from schemas.locations import state_dir
from schemas.release import FileEntry

FORMAT_VERSION = 1
CURRENT, MANIFEST = "current.json", "manifest.json"
MODEL, MODEL_ORT, DEFAULTS = "model.onnx", "model.ort", "defaults.bin"


def shard_name(number: int) -> str:
    """``codes/<number>.bin``."""
    return f"codes/{number}.bin"


def bundles_dir() -> Path:
    """Where bundles are made and served from."""
    return state_dir() / "edge"


class Measured(msgspec.Struct, frozen=True):
    """One export of the graph, against the release's own (fp32) on the same inputs."""

    num_bytes: int
    max_abs_difference: float  # from fp32
    spread: float  # largest difference between the runtime's ways of running it, optimised or not
    encode_ms: float  # median, on the machine that made the bundle
    within: bool  # both bounds hold


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What the id is the hash of."""

    release: str
    made_at: int  # of the release, ms
    graph: str  # the export that was chosen: fp32, fp16 or int8
    sizes: Sizes
    buckets: list[str]  # names, by number; 0 is everybody
    files: dict[str, FileEntry]
    tail_shards: int
    minimum_runtimes: dict[str, str]
    usable_for_s: float  # age of the release past which the bundle is not used
    prompt_usable_for_s: float  # age past which a prompt embedding is not sent


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of ``manifest.json``."""

    id: str
    content: Content
    measured: dict[str, Measured]
    format: int = FORMAT_VERSION


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle, and who gets it (``edge.rollout``)."""

    id: str
    share: float = 1.0  # of devices
    min_app: str = "0"  # oldest version of the app


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of ``current.json``: the first offer that admits a device is its bundle."""

    made_at: int  # ms; an older one than the last seen is not followed
    offers: list[Offer]
    refresh_s: float = 3600.0  # look again after so long
    format: int = FORMAT_VERSION


def bundle_id(content: Content) -> str:
    """Equal content, equal id. ``model.ort`` is left out: it follows from ``model.onnx``, but its bytes vary with each
    making."""
    files = {name: entry for name, entry in content.files.items() if name != MODEL_ORT}
    hashed = msgspec.structs.replace(content, files=files)
    return hashlib.sha256(msgspec.json.encode(hashed, order="sorted")).hexdigest()[:16]
