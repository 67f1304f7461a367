"""The fixture release, and small things to say about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from edge import make_vectors
from edge.bundle import Bundle
from edge.encoder import Encoder
from edge.read_bundle import read_bundle
from edge.read_release import ReleaseParts, read_release
from schemas.event import Event
from schemas.names import Kind
from schemas.release import MANIFEST, Manifest, content_id, file_entry, load_public_key, write_manifest

FIXTURES = Path(__file__).parent.parent / "fixtures"
NOW_MS = 1_772_359_500_123


@pytest.fixture(scope="session")
def release() -> Path:
    return FIXTURES / "release"


@pytest.fixture(scope="session")
def key_path() -> Path:
    return FIXTURES / "release.pub"


@pytest.fixture(scope="session")
def key(key_path: Path) -> Ed25519PublicKey:
    return load_public_key(key_path)


@pytest.fixture(scope="session")
def parts(release: Path, key: Ed25519PublicKey) -> ReleaseParts:
    return read_release(release, key)


@pytest.fixture(scope="session")
def bundle_folder() -> Path:
    """The bundle of the vectors, made from the fixture release."""
    return make_vectors.VECTORS / "bundle" / make_vectors.read().bundle


@pytest.fixture(scope="session")
def bundle(bundle_folder: Path, key: Ed25519PublicKey) -> Bundle:
    return read_bundle(bundle_folder, [key])


@pytest.fixture
def copied(release: Path, tmp_path: Path) -> Path:
    """A copy of the release, to damage."""
    return Path(shutil.copytree(release, tmp_path / "release"))


Resign = Callable[..., Ed25519PublicKey]


@pytest.fixture
def resign(copied: Path) -> Resign:
    """Sign the copy anew, with changed fields of ``content``: a well-signed release with something wrong inside."""

    def sign(**changes: object) -> Ed25519PublicKey:
        manifest = msgspec.json.decode((copied / MANIFEST).read_bytes(), type=Manifest)
        files = {name: file_entry(copied / name) for name in manifest.content.files if (copied / name).exists()}
        content = msgspec.structs.replace(manifest.content, **{"files": files, **changes})
        private = Ed25519PrivateKey.generate()
        write_manifest(copied, msgspec.structs.replace(manifest, id=content_id(content), content=content), private)
        return private.public_key()

    return sign


MakeEvent = Callable[..., Event]


@pytest.fixture
def event(parts: ReleaseParts) -> MakeEvent:
    """The n-th event of user u1, n seconds after the first; any field may be given."""
    items = parts.item_ids

    def make(number: int = 0, **fields: object) -> Event:
        usual = {
            "event_id": f"e{number:03}",
            "user_id": "u1",
            "item_id": items[number % len(items)],
            "kind": Kind.CLICK,
            "at": NOW_MS - 100_000 + 1_000 * number,
        }
        return Event(**{**usual, **fields})

    return make


class FakeEncoder:
    """Does as it is told in place of the graph."""

    def __init__(self, answer: Callable[[dict], object]) -> None:
        self.answer = answer

    def switch(self) -> SimpleNamespace:
        return SimpleNamespace(terminate=False)

    def run(self, feeds: dict, _switch: SimpleNamespace) -> object:
        return self.answer(feeds)


Fake = Callable[[Callable[[dict], object]], Callable[[bytes], Encoder]]


@pytest.fixture
def fake() -> Fake:
    """``load`` for an Edge whose encoder answers with the given function of the feeds."""
    return lambda answer: lambda _graph: FakeEncoder(answer)


@pytest.fixture
def zeros(bundle: Bundle) -> np.ndarray:
    """A well-formed answer of the encoder."""
    return np.zeros((1, bundle.sizes.prompt_rows, bundle.sizes.width), np.float32)
