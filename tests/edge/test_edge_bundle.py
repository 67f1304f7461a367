"""A bundle is verified, complete, bounded, and holds nothing of anybody."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from edge.bundle import FILES, ITEM_CODES, PROMPT_DEFAULTS, Bundle, load_bundle
from schemas.errors import ReleaseError
from schemas.release import PROFILES


def test_codes_of_every_item_are_those_of_the_release(bundle: Bundle, release: Path) -> None:
    codes = np.load(release / ITEM_CODES)
    for item_id, number in bundle.numbers.items():
        assert np.array_equal(bundle.codes(item_id), codes[number])
    assert bundle.codes("no such item") is None


def test_arrays_are_mapped_and_read_only(bundle: Bundle) -> None:
    for array in (bundle.item_codes, bundle.prompt_defaults):
        assert isinstance(array, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_bucket_that_the_release_lacks_is_everybody(bundle: Bundle) -> None:
    last = bundle.model.num_buckets - 1
    assert [bundle.known_bucket(number) for number in (-1, 0, last, last + 1)] == [0, 0, last, 0]


def test_only_the_files_it_uses_are_read(copied: Path, key: Ed25519PublicKey) -> None:
    for path in copied.rglob("*"):
        if path.is_file() and path.relative_to(copied).as_posix() not in (*FILES, "manifest.json", "manifest.sig"):
            path.unlink()
    assert not (copied / PROFILES).exists()
    assert load_bundle(copied, key).numbers


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_changed_byte_is_refused(copied: Path, key: Ed25519PublicKey, name: str) -> None:
    raw = bytearray((copied / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (copied / name).write_bytes(raw)
    with pytest.raises(ReleaseError, match=r"differs|signature"):
        load_bundle(copied, key)


def test_another_key_is_refused(release: Path) -> None:
    with pytest.raises(ReleaseError, match="signature"):
        load_bundle(release, Ed25519PrivateKey.generate().public_key())


def test_a_bundle_above_the_limit_is_refused_unread(copied: Path, key: Ed25519PublicKey) -> None:
    (copied / ITEM_CODES).unlink()
    with pytest.raises(ReleaseError, match="more than 10 bytes"):
        load_bundle(copied, key, max_bytes=10)


def test_a_missing_file_is_named(copied: Path, resign) -> None:
    (copied / PROMPT_DEFAULTS).unlink()
    with pytest.raises(ReleaseError, match=PROMPT_DEFAULTS):
        load_bundle(copied, resign())


def test_an_older_runtime_than_needed_is_refused(copied: Path, resign) -> None:
    key = resign(minimum_runtimes={"onnxruntime": "99.1", "opset": "20"})
    with pytest.raises(ReleaseError, match=r"needs onnxruntime 99\.1"):
        load_bundle(copied, key)


def test_default_rows_that_are_not_finite_are_refused(copied: Path, resign) -> None:
    rows = np.load(copied / PROMPT_DEFAULTS)
    rows[-1, -1, -1] = np.nan
    np.save(copied / PROMPT_DEFAULTS, rows)
    with pytest.raises(ReleaseError, match="not finite"):
        load_bundle(copied, resign())


def test_an_array_of_another_shape_is_refused(copied: Path, resign) -> None:
    np.save(copied / ITEM_CODES, np.load(copied / ITEM_CODES)[:-1])
    with pytest.raises(ReleaseError, match="item_codes"):
        load_bundle(copied, resign())


def test_a_pickled_array_is_refused(copied: Path, resign) -> None:
    np.save(copied / ITEM_CODES, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ReleaseError, match="not an array"):
        load_bundle(copied, resign())
