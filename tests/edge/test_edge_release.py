"""What a bundle is made from is verified, complete, bounded, and holds nothing of anybody."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from edge.bundle import Bundle
from edge.read_release import FILES, ITEM_CODES, PROMPT_DEFAULTS, ReleaseParts, read_release
from schemas.errors import ReleaseError
from schemas.release import PROFILES


def test_codes_of_every_item_are_those_of_the_release(parts: ReleaseParts, release: Path) -> None:
    codes, as_bundle = np.load(release / ITEM_CODES), parts.as_bundle()
    for number, item_id in enumerate(parts.item_ids):
        assert np.array_equal(as_bundle.codes(item_id), codes[number])
    assert as_bundle.codes("no such item") is None


def test_arrays_are_mapped_and_read_only(parts: ReleaseParts) -> None:
    for array in (parts.item_codes, parts.prompt_defaults):
        assert isinstance(array, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_bucket_that_the_release_lacks_is_everybody(bundle: Bundle) -> None:
    last = bundle.sizes.num_buckets - 1
    assert [bundle.known_bucket(number) for number in (-1, 0, last, last + 1)] == [0, 0, last, 0]
    assert [bundle.known_bucket(name) for name in (*bundle.buckets, "no such", "")] == [*range(last + 1), 0, 0]


def test_only_the_files_it_uses_are_read(copied: Path, key: Ed25519PublicKey) -> None:
    for path in copied.rglob("*"):
        if path.is_file() and path.relative_to(copied).as_posix() not in (*FILES, "manifest.json", "manifest.sig"):
            path.unlink()
    assert not (copied / PROFILES).exists()
    assert read_release(copied, key).item_ids


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_changed_byte_is_refused(copied: Path, key: Ed25519PublicKey, name: str) -> None:
    raw = bytearray((copied / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (copied / name).write_bytes(raw)
    with pytest.raises(ReleaseError, match=r"differs|signature"):
        read_release(copied, key)


def test_another_key_is_refused(release: Path) -> None:
    with pytest.raises(ReleaseError, match="signature"):
        read_release(release, Ed25519PrivateKey.generate().public_key())


def test_a_release_above_the_limit_is_refused_unread(copied: Path, key: Ed25519PublicKey) -> None:
    (copied / ITEM_CODES).unlink()
    with pytest.raises(ReleaseError, match="more than 10 bytes"):
        read_release(copied, key, max_bytes=10)


def test_a_missing_file_is_named(copied: Path, resign) -> None:
    (copied / PROMPT_DEFAULTS).unlink()
    with pytest.raises(ReleaseError, match=PROMPT_DEFAULTS):
        read_release(copied, resign())


def test_an_older_runtime_than_needed_is_refused(copied: Path, resign) -> None:
    key = resign(minimum_runtimes={"onnxruntime": "99.1", "opset": "20"})
    with pytest.raises(ReleaseError, match=r"needs onnxruntime 99\.1"):
        read_release(copied, key)


def test_default_rows_that_are_not_finite_are_refused(copied: Path, resign) -> None:
    rows = np.load(copied / PROMPT_DEFAULTS)
    rows[-1, -1, -1] = np.nan
    np.save(copied / PROMPT_DEFAULTS, rows)
    with pytest.raises(ReleaseError, match="not finite"):
        read_release(copied, resign())


def test_an_array_of_another_shape_is_refused(copied: Path, resign) -> None:
    np.save(copied / ITEM_CODES, np.load(copied / ITEM_CODES)[:-1])
    with pytest.raises(ReleaseError, match="item_codes"):
        read_release(copied, resign())


def test_a_pickled_array_is_refused(copied: Path, resign) -> None:
    np.save(copied / ITEM_CODES, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ReleaseError, match="not an array"):
        read_release(copied, resign())
