"""Bundles that must be refused, as changes to a tree that serves a good one. Part of the vectors.

Each is applied alone: a device that has the good bundle looks again, and must say ``reason`` and keep the good one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge.envelope import seal
from edge.layout import CURRENT, DEFAULTS, MANIFEST, MODEL, MODEL_ORT, BundleManifest, Current, Offer, shard_name
from edge.names import BundleReason
from edge.probes import NOW_MS
from schemas.release import FileEntry

NEW = "00000000000000b1"
NEW_RELEASE = "00000000000000a1"
FUTURE = {"onnxruntime": "99"}
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
"""Signs what must be refused, and nothing else."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One change. ``release`` is what serves after it."""

    name: str
    reason: BundleReason
    release: str
    files: dict[str, bytes | None]  # path → its bytes (base64), None: it is missing


def faults(tree: Path, good: BundleManifest, key: Ed25519PrivateKey) -> list[Fault]:
    """The list. The new bundle shares every file with the good one, unless the fault is in a file."""
    make = _Maker(tree, good, key)
    raw = make.manifest()
    return [
        make.fault("a good one", BundleReason.OK, raw, release=NEW_RELEASE),
        make.fault("a manifest that is missing", BundleReason.HTTP_ERROR, None),
        make.fault("a manifest cut short", BundleReason.CORRUPT, raw[: len(raw) // 2]),
        make.fault("an empty manifest", BundleReason.CORRUPT, b""),
        make.fault("an unsigned manifest", BundleReason.CORRUPT, msgspec.json.encode(make.new)),
        make.fault("a changed manifest", BundleReason.BAD_SIGNATURE, raw.replace(NEW_RELEASE.encode(), b"f" * 16)),
        make.fault("an older key", BundleReason.UNKNOWN_KEY, seal(make.new, OTHER_KEY)),
        make.fault("a key's name on another's signature", BundleReason.BAD_SIGNATURE, make.forged()),
        make.fault("a newer format", BundleReason.TOO_NEW, make.manifest(format=2)),
        make.fault("the manifest of another bundle", BundleReason.CORRUPT, make.manifest(id=good.id)),
        make.fault(
            "a newer runtime", BundleReason.RUNTIME_TOO_OLD, make.content(minimum_runtimes={"onnxruntime": "99"})
        ),
        make.fault("past its age", BundleReason.TOO_OLD, make.content(usable_for_s=60.0)),
        make.sized("too large", BundleReason.TOO_LARGE, 10**12),
        make.with_file("a file of other bytes", BundleReason.CORRUPT, DEFAULTS, make.read(DEFAULTS)),
        make.with_file("a file cut short", BundleReason.CORRUPT, DEFAULTS, make.read(DEFAULTS)[:-1]),
        make.with_file("a file that is missing", BundleReason.HTTP_ERROR, DEFAULTS, None),
        make.with_file("default rows not finite", BundleReason.CORRUPT, DEFAULTS, make.not_finite(), true=True),
        make.with_file("default rows of another shape", BundleReason.CORRUPT, DEFAULTS, b"\0" * 8, true=True),
        make.with_file("a table that is none", BundleReason.CORRUPT, shard_name(0), b"not a table at all", true=True),
        make.with_file("a graph that is none", BundleReason.DOES_NOT_LOAD, MODEL, b"no graph", true=True),
        make.pointer("a pointer cut short", BundleReason.CORRUPT, make.current(NOW_MS + 1)[:-9]),
        make.pointer("a pointer of an older key", BundleReason.UNKNOWN_KEY, make.current(NOW_MS + 1, OTHER_KEY)),
        make.pointer("a pointer seen before", BundleReason.NOT_NEWER, make.current(NOW_MS - 1)),
        make.pointer("nothing offered", BundleReason.NO_OFFER, seal(Current(made_at=NOW_MS + 1, offers=[]), key)),
        make.pointer("a pointer that is missing", BundleReason.HTTP_ERROR, None),
    ]


class _Maker:
    def __init__(self, tree: Path, good: BundleManifest, key: Ed25519PrivateKey) -> None:
        self._folder = tree / good.id
        self._good = good
        self._key = key
        content = msgspec.structs.replace(good.content, release=NEW_RELEASE)
        self.new = msgspec.structs.replace(good, id=NEW, content=content)

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def not_finite(self) -> bytes:
        return self.read(DEFAULTS)[:-4] + bytes.fromhex("0000c07f")

    def manifest(self, **changes: object) -> bytes:
        return seal(msgspec.structs.replace(self.new, **changes), self._key)

    def content(self, **changes: object) -> bytes:
        return self.manifest(content=msgspec.structs.replace(self.new.content, **changes))

    def forged(self) -> bytes:
        other = msgspec.json.decode(seal(self.new, OTHER_KEY))
        ours = msgspec.json.decode(seal(self.new, self._key))
        return msgspec.json.encode(ours | {"signature": other["signature"]})

    def current(self, made_at: int, key: Ed25519PrivateKey | None = None) -> bytes:
        return seal(Current(made_at=made_at, offers=[Offer(id=NEW)]), key or self._key)

    def pointer(self, name: str, reason: BundleReason, raw: bytes | None) -> Fault:
        return Fault(name=name, reason=reason, release=self._good.content.release, files={CURRENT: raw})

    def fault(self, name: str, reason: BundleReason, raw: bytes | None, *, release: str = "") -> Fault:
        changed = {CURRENT: self.current(NOW_MS + 1), f"{NEW}/{MANIFEST}": raw}
        return Fault(name=name, reason=reason, release=release or self._good.content.release, files=changed)

    def sized(self, name: str, reason: BundleReason, num_bytes: int) -> Fault:
        entry = FileEntry("0" * 64, num_bytes)
        return self.fault(name, reason, self.content(files=self.new.content.files | {DEFAULTS: entry}))

    def with_file(self, name: str, reason: BundleReason, file: str, raw: bytes | None, *, true: bool = False) -> Fault:
        """A bundle with another file: with ``true`` the manifest says so, else it still names the good one's size."""
        named = [MODEL, MODEL_ORT] if file == MODEL else [file]
        digest = hashlib.sha256(raw or b"").hexdigest() if true else "0" * 64
        size = len(raw or b"") if true else self._good.content.files[file].num_bytes
        files = self.new.content.files | dict.fromkeys(named, FileEntry(digest, size))
        given = self.fault(name, reason, self.content(files=files))
        changed = {f"{NEW}/{each}": raw for each in named}
        return msgspec.structs.replace(given, files=given.files | changed)
