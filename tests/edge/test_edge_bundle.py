"""A bundle is made from a release, whole and once; a faulty one is refused with its reason."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge import exports, make_vectors
from edge.bundle import BundleError
from edge.encoder import OnnxEncoder
from edge.envelope import read_envelope
from edge.exports import Export
from edge.layout import CURRENT, DEFAULTS, MANIFEST, MODEL, MODEL_ORT, BundleManifest, Measured, Offer
from edge.make_bundle import Source, make_bundle, popular
from edge.make_faults import NEW, Fault
from edge.make_vectors import SETTINGS
from edge.names import BundleReason
from edge.probes import probes
from edge.read_bundle import read_bundle
from edge.roll_out import offers_for
from edge.runtime import Edge
from schemas.errors import ReleaseError
from schemas.release import PROFILES, load_private_key

FAULTS = msgspec.json.decode((make_vectors.VECTORS / "faults.json").read_bytes(), type=list[Fault])
REMOTE = {BundleReason.HTTP_ERROR: BundleReason.UNREACHABLE, BundleReason.TOO_OLD: BundleReason.OK}
"""What the same fault is to a reader of folders: a missing file is not there; age is judged when it is used."""


@pytest.fixture(scope="session")
def source(release: Path, key_path: Path, key) -> Source:
    return Source(release, key, load_private_key(key_path.with_suffix(".pem")))


@pytest.fixture
def made(source: Source, tmp_path: Path) -> tuple[BundleManifest, Path]:
    manifest, is_new = make_bundle(source, SETTINGS, tmp_path, exports.FP32)
    assert is_new
    return manifest, tmp_path / manifest.id


def test_it_holds_what_the_release_holds(made, parts, key) -> None:
    manifest, folder = made
    bundle = read_bundle(folder, [key])
    assert (bundle.release, bundle.made_at_ms) == (parts.manifest.id, parts.manifest.made_at)
    assert np.array_equal(bundle.prompt_defaults, parts.prompt_defaults)
    for number, item_id in enumerate(parts.item_ids):
        assert np.array_equal(bundle.codes(item_id), parts.item_codes[number])
    assert bundle.graph == parts.graph
    assert manifest.content.tail_shards > 0


def test_it_names_no_user_no_title_and_no_item(made, release, parts) -> None:
    everything = b"".join(path.read_bytes() for path in made[1].rglob("*") if path.is_file() and path.suffix != ".gz")
    users = msgspec.msgpack.decode((release / PROFILES).read_bytes())["users"]
    titles = msgspec.msgpack.decode((release / "catalogue.msgpack").read_bytes())["titles"]
    for text in [*titles, *parts.item_ids, *(f'"{user}"' for user in users)]:
        assert text.encode() not in everything, text


def test_equal_content_is_made_once(made, source, tmp_path) -> None:
    manifest, folder = made
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    again, is_new = make_bundle(source, SETTINGS, tmp_path, exports.FP32)
    assert (again.id, is_new) == (manifest.id, False)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert [path.name for path in tmp_path.iterdir()] == [manifest.id]


def test_files_that_shrink_are_kept_compressed_too(made) -> None:
    packed = list(made[1].rglob("*.gz"))
    assert made[1] / f"{MODEL}.gz" in packed
    for path in packed:
        assert gzip.decompress(path.read_bytes()) == path.with_suffix("").read_bytes()


def test_both_forms_of_the_graph_give_the_same(made, parts) -> None:
    feeds = probes(parts.as_bundle(), parts.item_ids, 8)
    rows = []
    for name in (MODEL, MODEL_ORT):
        encoder = OnnxEncoder((made[1] / name).read_bytes())
        rows.append(np.concatenate([encoder.run(one, encoder.switch()) for one in feeds]))
    assert np.abs(rows[0] - rows[1]).max() <= 1e-6


def test_a_first_load_that_is_too_large_is_refused(source, tmp_path) -> None:
    with pytest.raises(ReleaseError, match=r"edge\.first_bytes"):
        make_bundle(source, replace(SETTINGS, first_bytes=1000), tmp_path, exports.FP32)
    assert not list(tmp_path.iterdir())


def test_popular_is_everybodys_list_then_the_others_by_rank() -> None:
    lists = np.array([[4, 2, -1], [1, 4, 0], [9, 5, -1]], np.int32)
    assert popular(lists, 7) == [4, 2, 1, 5, 0, 3, 6]


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if f"{NEW}/{MANIFEST}" in fault.files], ids=lambda f: f.name
)
def test_each_fault_is_refused_with_its_reason(fault: Fault, bundle_folder: Path, tmp_path: Path, key) -> None:
    folder = tmp_path / NEW
    shutil.copytree(bundle_folder, folder)
    for name, raw in fault.files.items():
        if name != CURRENT:
            (tmp_path / name).unlink()
            if raw is not None:
                (tmp_path / name).write_bytes(raw)
    assert reason_of(folder, key) == REMOTE.get(fault.reason, fault.reason)


def reason_of(folder: Path, key) -> BundleReason:
    try:
        bundle = read_bundle(folder, [key])
    except BundleError as error:
        return error.reason
    edge = Edge(bundle, consent=True)
    edge.warm()
    assert edge._worker is not None
    broken = edge._worker.encoder.exception(60)
    edge.close()
    return BundleReason.DOES_NOT_LOAD if broken else BundleReason.OK


def test_the_faults_cover_every_reason_that_a_tree_can_show() -> None:
    network = {BundleReason.UNREACHABLE, BundleReason.TIMED_OUT}
    assert {fault.reason for fault in FAULTS} == set(BundleReason) - network


def test_an_older_pinned_key_beside_the_new_one_is_accepted(made, key) -> None:
    assert read_bundle(made[1], [Ed25519PrivateKey.generate().public_key(), key]).release


def test_the_manifest_names_no_file_outside(made, key) -> None:
    manifest = read_envelope(made[1] / MANIFEST, [key], BundleManifest)
    assert {MODEL, MODEL_ORT, DEFAULTS} < set(manifest.content.files)
    assert all(not name.startswith(("/", ".")) for name in manifest.content.files)


def export(kind: str, *, num_bytes: int, encode_ms: float, within: bool = True) -> Export:
    return Export(kind, b"", b"", Measured(num_bytes, 0.0, 0.0, encode_ms, within))


def test_the_fastest_within_the_bounds_is_kept_and_a_tie_goes_to_the_smallest() -> None:
    fp32 = export("fp32", num_bytes=400, encode_ms=2.0)
    int8 = export("int8", num_bytes=100, encode_ms=2.3)
    fp16 = export("fp16", num_bytes=50, encode_ms=1.0, within=False)
    assert exports.choose([fp32, fp16, int8]) is int8
    slow = export("int8", num_bytes=100, encode_ms=2.6)
    assert exports.choose([fp32, fp16, slow]) is fp32
    assert exports.choose([fp32, fp16, slow], "int8") is slow
    with pytest.raises(ReleaseError, match="--graph"):
        exports.choose([fp32, fp16], "fp16")


def test_int8_and_fp16_are_measured_against_fp32(parts) -> None:
    pytest.importorskip("onnx", reason="onnx is not in this environment: exports are made where it is")
    feeds = probes(parts.as_bundle(), parts.item_ids, 16)
    made = {export.kind: export for export in exports.make_exports(parts.graph, feeds, 0.1)}
    assert made["fp32"].measured.max_abs_difference == 0.0
    assert 0.0 < made["int8"].measured.max_abs_difference < 0.02
    assert made["int8"].measured.spread <= exports.MAX_SPREAD
    assert len(made["int8"].onnx) < len(made["fp32"].onnx)
    tight = {export.kind: export for export in exports.make_exports(parts.graph, feeds, 1e-9)}
    assert [tight[kind].measured.within for kind in exports.KINDS] == [True, False, False]


def test_the_vectors_bundle_says_which_graph_was_kept(bundle_folder: Path, key) -> None:
    manifest = read_envelope(bundle_folder / MANIFEST, [key], BundleManifest)
    assert set(manifest.measured) == set(exports.KINDS)
    assert manifest.measured[manifest.content.graph].within
    assert json.loads((bundle_folder / MANIFEST).read_bytes()).keys() == {"key", "payload", "signature"}


def test_a_new_offer_keeps_the_widest_for_the_rest() -> None:
    old, part, new = Offer(id="old"), Offer(id="part", share=0.1), Offer(id="new", share=0.5)
    assert offers_for(new, [part, old]) == [new, old]
    assert offers_for(Offer(id="part", share=0.5), [part, old]) == [Offer(id="part", share=0.5), old]
    assert offers_for(Offer(id="new"), [part, old]) == [Offer(id="new")]
    assert offers_for(Offer(id="new", min_app="3"), [old]) == [Offer(id="new", min_app="3"), old]
