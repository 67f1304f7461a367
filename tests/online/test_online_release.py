"""Loading a release: verified, mapped, warm, or refused with the file's name."""

from __future__ import annotations

import gc
import shutil

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from online_values import FIXTURES, KEY

from online.release import load
from schemas.errors import ReleaseError
from schemas.release import content_id, file_entry, load_private_key, read_manifest, write_manifest


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(FIXTURES / "release", tmp_path / "release")


def resign(folder, *, files=None, **content_changes):
    """Sign the folder's content as it now is, as an honest but wrong build would."""
    manifest = read_manifest(FIXTURES / "release", KEY)
    names = files if files is not None else list(manifest.content.files)
    entries = {name: file_entry(folder / name) for name in names}
    content = msgspec.structs.replace(manifest.content, files=entries, **content_changes)
    changed = msgspec.structs.replace(manifest, content=content, id=content_id(content))
    write_manifest(folder, changed, load_private_key(FIXTURES / "release.pem"))


def test_arrays_are_mapped_and_graphs_are_timed(release):
    assert all(isinstance(array.base, np.memmap) for array in release.arrays.values())
    assert set(release.usual_s) == {"decode", "intent_state", "prompt_embedding"}
    assert all(seconds > 0 for seconds in release.usual_s.values())


def test_the_garbage_collector_does_not_walk_what_is_loaded():
    gc.unfreeze()
    try:
        loaded = load(FIXTURES / "release", KEY)
        assert gc.isenabled()
        assert not any(found is loaded.catalogue.item_ids for found in gc.get_objects())
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("name", ["catalogue.msgpack", "profiles.msgpack"])
def test_a_table_that_was_cut_short_is_named(folder, name):
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw[: len(raw) // 2])
    resign(folder)
    with pytest.raises(ReleaseError, match=rf"{name}.*damaged: Input data was truncated"):
        load(folder, KEY)
    assert gc.isenabled()


def test_a_release_of_format_1_decodes_as_it_did():
    """Its decoder takes no category sets."""
    case = msgspec.json.decode((FIXTURES / "expected-format-1.json").read_bytes())["decoder.onnx"]
    kinds = {"neighbour_item": np.int64, "exclude": np.int64, "allow": np.int64}
    feed = {name: np.asarray(given, kinds.get(name, np.float32)) for name, given in case["inputs"].items()}
    del feed["weights"]
    items, scores = load(FIXTURES / "release-format-1", KEY).decoder.run(feed)
    assert items.tolist() == case["outputs"]["item"]
    np.testing.assert_allclose(scores, case["outputs"]["score"], atol=1e-4)


def test_items_carry_their_codes(release):
    items = release.items(np.array([3, 1]), np.array([0.5, 0.25], np.float32))
    assert [item.item_id for item in items] == [release.catalogue.item_ids[3], release.catalogue.item_ids[1]]
    assert items[0].sid == release.arrays["item_codes"][3].tolist()
    assert [item.score for item in items] == [0.5, 0.25]


@pytest.mark.parametrize("name", ["decoder.onnx", "arrays/item_codes.npy", "catalogue.msgpack"])
def test_one_changed_byte_is_named(folder, name):
    raw = bytearray((folder / name).read_bytes())
    raw[-1] ^= 1
    (folder / name).write_bytes(raw)
    with pytest.raises(ReleaseError, match=name):
        load(folder, KEY)


def test_a_missing_file_is_named(folder):
    (folder / "arrays" / "child_1.npy").unlink()
    with pytest.raises(ReleaseError, match="child_1"):
        load(folder, KEY)


def test_another_key_is_refused():
    with pytest.raises(ReleaseError, match="signature"):
        load(FIXTURES / "release", Ed25519PrivateKey.generate().public_key())


def test_another_release_in_the_folder_is_refused(release):
    with pytest.raises(ReleaseError, match="another release"):
        load(FIXTURES / "release", KEY, "0000")
    assert load(FIXTURES / "release", KEY, release.id).id == release.id


def test_a_file_that_the_manifest_does_not_vouch_for_is_not_read(folder):
    manifest = read_manifest(folder, KEY)
    resign(folder, files=[name for name in manifest.content.files if name != "decoder.onnx"])
    with pytest.raises(ReleaseError, match=r"decoder\.onnx"):
        load(folder, KEY)


def test_a_newer_runtime_is_asked_for(folder):
    resign(folder, minimum_runtimes={"onnxruntime": "99.1"})
    with pytest.raises(ReleaseError, match=r"99\.1"):
        load(folder, KEY)


def test_an_array_of_another_shape_is_named(folder):
    np.save(folder / "arrays" / "intent_defaults.npy", np.zeros((4, 2, 16), np.float32))
    resign(folder)
    with pytest.raises(ReleaseError, match="intent_defaults"):
        load(folder, KEY)


def test_a_pickle_is_not_loaded(folder):
    np.save(folder / "arrays" / "item_bias.npy", np.array([{}], object), allow_pickle=True)
    resign(folder)
    with pytest.raises(ReleaseError, match="item_bias"):
        load(folder, KEY)


def test_a_decoder_that_is_no_graph_is_named(folder):
    (folder / "decoder.onnx").write_bytes(b"not a graph")
    resign(folder)
    with pytest.raises(ReleaseError, match=r"decoder\.onnx"):
        load(folder, KEY)


def test_a_decoder_that_gives_no_numbers_does_not_load(folder):
    array = np.load(folder / "arrays" / "item_bias.npy")
    np.save(folder / "arrays" / "item_bias.npy", np.full_like(array, np.nan))
    resign(folder)
    with pytest.raises(ReleaseError):
        load(folder, KEY)
