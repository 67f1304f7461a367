"""Signed JSON: written with the release's key, read with the keys that an app pins."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from edge.bundle import BundleError
from edge.layout import FORMAT_VERSION
from edge.names import BundleReason

T = TypeVar("T")


class Envelope(msgspec.Struct, frozen=True):
    """The file."""

    key: str
    payload: str
    signature: str


class _Format(msgspec.Struct, frozen=True):
    format: int


def pinned(key: Ed25519PublicKey) -> str:
    """The key as an app pins it: its 32 bytes in base64."""
    return base64.b64encode(key.public_bytes_raw()).decode()


def key_id(key: Ed25519PublicKey) -> str:
    """The first 16 hex digits of the sha256 of the key's 32 bytes."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def seal(payload: msgspec.Struct, key: Ed25519PrivateKey) -> bytes:
    """The envelope of ``payload``, signed."""
    raw = msgspec.json.encode(payload, order="sorted")
    signature = base64.b64encode(key.sign(raw)).decode()
    return msgspec.json.encode(Envelope(key_id(key.public_key()), raw.decode(), signature)) + b"\n"


def unseal(raw: bytes, keys: Sequence[Ed25519PublicKey], kind: type[T], where: str) -> T:
    """The payload, its signature checked before anything in it is believed.

    Raises:
        BundleError: CORRUPT, UNKNOWN_KEY, BAD_SIGNATURE, TOO_NEW.
    """
    try:
        envelope = msgspec.json.decode(raw, type=Envelope)
        payload, signature = envelope.payload.encode(), base64.b64decode(envelope.signature, validate=True)
    except (msgspec.DecodeError, UnicodeError, binascii.Error) as error:
        raise BundleError(BundleReason.CORRUPT, f"not a signed file: {error}", where=where) from None
    key = next((key for key in keys if key_id(key) == envelope.key), None)
    if key is None:
        mend = "Sign it with the key that the app pins, or pin this one too."
        raise BundleError(
            BundleReason.UNKNOWN_KEY, "signed with another key", where=where, value=envelope.key, mend=mend
        )
    try:
        key.verify(signature, payload)
    except InvalidSignature:
        raise BundleError(BundleReason.BAD_SIGNATURE, "the signature does not match", where=where) from None
    try:
        written = msgspec.json.decode(payload, type=_Format).format
        if written > FORMAT_VERSION:
            mend = "Upgrade the SDK in the app first."
            raise BundleError(BundleReason.TOO_NEW, "made by a newer version", where=where, value=written, mend=mend)
        return msgspec.json.decode(payload, type=kind)
    except msgspec.DecodeError as error:
        raise BundleError(BundleReason.CORRUPT, f"not what it should hold: {error}", where=where) from None


def read_envelope(path: Path, keys: Sequence[Ed25519PublicKey], kind: type[T]) -> T:
    """The payload of a file. Raises as ``unseal``, and UNREACHABLE when the file can't be read."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BundleError(BundleReason.UNREACHABLE, f"not there: {error.strerror}", where=str(path)) from None
    return unseal(raw, keys, kind, str(path))
