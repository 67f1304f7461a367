"""A release: an immutable, signed, content-addressed directory of artefacts made together.

::

    <id>/manifest.json      this contract; id = the first 16 hex digits of the sha256 of its ``content`` part
    <id>/manifest.sig       Ed25519 signature of manifest.json's bytes
    <id>/*.onnx             the three graphs (schemas.graphs)
    <id>/arrays/*.npy       flat arrays, memory-mapped by readers, never pickled
    <id>/catalogue.msgpack  Catalogue
    <id>/profiles.msgpack   Profiles
    <id>/report.json        metrics and how they were made
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from schemas.errors import ReleaseError

FORMAT_VERSION = 2
"""2: the decoder takes the sets of categories below its nodes (``schemas.graphs.decoder_arrays``)."""
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
CATALOGUE, PROFILES, REPORT, ARRAYS = "catalogue.msgpack", "profiles.msgpack", "report.json", "arrays"
UNKNOWN_BUCKET = 0
"""Profile bucket 0 is everybody: users of whom nothing is known, and the ``popular`` list."""


class FileEntry(msgspec.Struct, frozen=True):
    """One file of the release, by its path inside it."""

    sha256: str
    num_bytes: int


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sizes every tier must agree on. Letters as in ``schemas.graphs``.

    A default is not written: a field that comes later leaves the ids of older releases as they are.
    """

    width: int  # d
    window: int  # T, events the intent encoder sees
    state_rows: int  # R
    prompt_rows: int  # P
    local_events: int  # E, events the prompt encoder sees
    levels: int  # L
    codes: int  # K per level
    num_items: int  # N
    num_buckets: int
    neighbours: int  # M, neighbours kept with a state
    neighbour_decay: float  # weight of the p-th newest event of the window is decay ** p
    k_max: int  # longest list the decoder returns
    weights: list[float]  # the decoder's input ``weights``
    neighbour_repeats: bool = True  # whether items of the window may be among its neighbours


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What the id is the hash of."""

    model: Model
    files: dict[str, FileEntry]
    minimum_runtimes: dict[str, str]  # {"onnxruntime": "1.20", "opset": "20"}
    parents: list[str] = []  # releases and input hashes this one was made from
    input_hash: str = ""  # of the data and settings it was built from


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``manifest.json``."""

    id: str
    content: Content
    metrics: dict[str, float]
    made_at: int  # ms
    format: int = FORMAT_VERSION


class Catalogue(msgspec.Struct, frozen=True):
    """Items in the order of their numbers."""

    item_ids: list[str]
    titles: list[str]
    categories: list[str]  # names, by category number (``item_category.npy``)


class Profiles(msgspec.Struct, frozen=True):
    """Profile buckets and who is in them."""

    buckets: list[str]  # names, by number; 0 is "everybody"
    users: dict[str, int]


def content_id(content: Content) -> str:
    """The release's id: equal content, equal id."""
    as_read = msgspec.json.decode(msgspec.json.encode(content), type=Content)  # 1 and 1.0 are one number
    return hashlib.sha256(msgspec.json.encode(as_read, order="sorted")).hexdigest()[:16]


def file_entry(path: Path) -> FileEntry:
    """Digest and size of a file, read in pieces."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(digest, path.stat().st_size)


def write_manifest(folder: Path, manifest: Manifest, key: Ed25519PrivateKey) -> None:
    """Write and sign ``manifest.json``; the last step of making a release."""
    raw = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=1)
    (folder / MANIFEST).write_bytes(raw)
    (folder / SIGNATURE).write_bytes(key.sign(raw))


def read_manifest(folder: Path, key: Ed25519PublicKey) -> Manifest:
    """The manifest, its signature checked, its files not yet (``verify_files``).

    Raises:
        ReleaseError: missing, damaged, not signed by ``key``, or of a newer format.
    """
    where = str(folder / MANIFEST)
    try:
        raw, signature = (folder / MANIFEST).read_bytes(), (folder / SIGNATURE).read_bytes()
    except OSError as error:
        raise ReleaseError(f"not a release: {error.strerror}", where=where, mend="Publish it again.") from None
    try:
        key.verify(signature, raw)
    except InvalidSignature:
        raise ReleaseError(
            "the signature does not match",
            where=where,
            mend="Use the key it was signed with, or publish it again.",
        ) from None
    try:
        manifest = msgspec.json.decode(raw, type=Manifest)
    except msgspec.DecodeError as error:
        raise ReleaseError(f"damaged manifest: {error}", where=where, mend="Publish it again.") from None
    if manifest.format > FORMAT_VERSION:
        raise ReleaseError(
            "made by a newer version", where=where, value=manifest.format, mend="Upgrade this service first."
        )
    if content_id(manifest.content) != manifest.id:
        raise ReleaseError("the id is not the hash of the content", where=where, value=manifest.id)
    return manifest


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Check every file's size and sha256.

    Raises:
        ReleaseError: naming the first file that is missing or differs.
    """
    for name, entry in manifest.content.files.items():
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ReleaseError("a file outside the release", where=str(folder / MANIFEST), value=name)
        if not path.is_file():
            raise ReleaseError("the file is missing", where=str(path), mend="Publish the release again.")
        if path.stat().st_size != entry.num_bytes or file_entry(path) != entry:
            raise ReleaseError("the file differs from the manifest", where=str(path), mend="Publish the release again.")


def load_private_key(path: Path, *, create: bool = False) -> Ed25519PrivateKey:
    """The signing key; with ``create`` a new pair is written (``path`` 0600, ``path.with_suffix('.pub')``)."""
    if create and not path.exists():
        key = Ed25519PrivateKey.generate()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        path.with_suffix(".pub").write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
    try:
        loaded = serialization.load_pem_private_key(_read_key(path), password=None)
    except (ValueError, TypeError) as error:
        raise ReleaseError(f"not a private key in PEM: {error}", where=str(path)) from None
    if not isinstance(loaded, Ed25519PrivateKey):
        raise ReleaseError("not an Ed25519 private key", where=str(path))
    return loaded


def load_public_key(path: Path) -> Ed25519PublicKey:
    """The key that releases must be signed with."""
    try:
        loaded = serialization.load_pem_public_key(_read_key(path))
    except ValueError as error:
        raise ReleaseError(f"not a public key in PEM: {error}", where=str(path)) from None
    if not isinstance(loaded, Ed25519PublicKey):
        raise ReleaseError("not an Ed25519 public key", where=str(path))
    return loaded


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReleaseError(
            f"no key: {error.strerror}", where=str(path), mend="Make a release first, or copy the key here."
        ) from None
