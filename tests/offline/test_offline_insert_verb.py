"""New items in a release: everything old keeps its place and its numbers, and the new ones can be recalled."""

import argparse
import shutil

import msgspec
import numpy as np
import onnxruntime
import pytest

from offline.build import encode_stage, insert_verb
from offline.build.insertion import find_alike, grown_arrays
from offline.build.kept import keep_for_insertion
from offline.build.stage import Build, Record, read_record, write_atomically
from offline.build.text_encoder import EncoderFiles
from offline.index import verb
from offline.index.insert import insert
from schemas.errors import DataError, ReleaseError
from schemas.graphs import DECODER, decoder_arrays
from schemas.item_change import ItemChange, encode_change
from schemas.lineage import LINEAGE, Family, read_lineage
from schemas.locations import ROOT, private_key_path, public_key_path, releases_dir
from schemas.plan import load_plan
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import (
    Catalogue,
    content_id,
    load_private_key,
    load_public_key,
    read_manifest,
    verify_files,
    write_manifest,
)

FIXTURE = ROOT / "tests" / "fixtures"
NUM = 60
NEEDED = ("encode", "index", "publish")


@pytest.fixture
def shop(state, monkeypatch):
    """A build that ended in the fixture release, with made-up vectors and an encoder that reads numbers."""
    manifest = read_manifest(FIXTURE / "release", load_public_key(FIXTURE / "release.pub"))
    content = msgspec.structs.replace(manifest.content, parents=["hash"])
    manifest = msgspec.structs.replace(manifest, id=content_id(content), content=content)
    shutil.copytree(FIXTURE / "release", releases_dir() / manifest.id)
    write_manifest(releases_dir() / manifest.id, manifest, load_private_key(FIXTURE / "release.pem"))
    private_key_path().parent.mkdir(parents=True)
    shutil.copy(FIXTURE / "release.pem", private_key_path())
    shutil.copy(FIXTURE / "release.pub", public_key_path())
    path = str(releases_dir() / manifest.id)
    row = ReleaseRow(manifest.id, path, "x", manifest.metrics, Status.FUTURE, manifest.made_at)
    Registry().publish(row, why="test")
    Registry().promote(manifest.id, why="test")
    build = Build("shop", load_plan())
    rng = np.random.default_rng(0)
    for stage in NEEDED:
        folder = build.work / stage / "hash"
        folder.mkdir(parents=True)
        result = {"release": manifest.id} if stage == "publish" else {}
        write_atomically(
            build.work / stage / "stage.json",
            msgspec.json.encode(Record("hash", result, 0.0, {"after": {"encode": "hash"}})),
        )
    order = rng.permutation(NUM)
    text = rng.standard_normal((NUM, 3)).astype(np.float32)
    np.save(build.work / "encode/hash/text.npy", text)
    for name, array in {
        "order": order,
        "vectors": rng.standard_normal((NUM, 6)).astype(np.float32),
        "centroids": rng.standard_normal((3, 8, 6)).astype(np.float32),
    }.items():
        np.save(build.work / f"index/hash/{name}.npy", array)
    monkeypatch.setattr(insert_verb, "encoder_files", lambda _name, threads: EncoderFiles("m", "t", "d", threads))
    monkeypatch.setattr(
        insert_verb,
        "encode_texts",
        lambda texts, _files, _folder: {key: np.full(3, len(value), np.float32) for key, value in texts.items()},
    )
    assert encode_stage.encode_texts  # what is replaced above is there
    build.records |= {stage: read_record(build, stage) for stage in NEEDED}
    keep_for_insertion(build, manifest.id)
    return build


def ask(tmp_path, rows, **more):
    (tmp_path / "items.csv").write_text("item_id,title,category\n" + "".join(f"{row}\n" for row in rows))
    given = {"items": tmp_path / "items.csv", "changes": None, "data": "shop", "set": [], "threads": 1}
    given |= {"promote": False, "keep": None, "listen": False} | more
    return insert_verb.insert_items(argparse.Namespace(**given))


def catalogue(release):
    folder = releases_dir() / release
    found = msgspec.msgpack.decode((folder / "catalogue.msgpack").read_bytes(), type=Catalogue)
    arrays = {path.stem: np.load(path) for path in (folder / "arrays").glob("*.npy")}
    return found, arrays


def taken(arrays):
    """Of a release's arrays those that its decoder takes."""
    return {name: arrays[name] for name in decoder_arrays(3, [f"arrays/{name}.npy" for name in arrays])}


def numbers_by(release, ancestor):
    """The numbers of all items of an ancestor as the release's lineage has them."""
    family = Family(read_lineage((releases_dir() / release / LINEAGE).read_bytes(), LINEAGE))
    return family.numbers(ancestor, range(len(catalogue(ancestor)[0].item_ids)))


def by_id(release):
    """What each item's id stands for: its codes, its rows and its neighbours, free of numbers."""
    found, arrays = catalogue(release)
    return {
        item: (
            tuple(arrays["item_codes"][number]),
            arrays["item_in"][number + 1].tolist(),
            arrays["item_out"][number].tolist(),
            found.categories[arrays["item_category"][number]],
            found.titles[number],
        )
        for number, item in enumerate(found.item_ids)
    }


def test_old_items_stay_and_new_ones_are_there(shop, tmp_path):
    base = Registry().current().id
    result = ask(tmp_path, ["new-1,绿茶,tea", "new-2,Candle,light", "item-007,Known,tea", ",no id,tea"])
    assert (result["inserted"], result["known"], result["rejected"], result["items"]) == (2, 1, 1, NUM + 2)
    verify_files(
        releases_dir() / result["release"],
        read_manifest(releases_dir() / result["release"], load_public_key(public_key_path())),
    )
    before, after = by_id(base), by_id(result["release"])
    assert after.keys() - before.keys() == {"new-1", "new-2"}
    assert all(after[item] == before[item] for item in before)
    assert after["new-2"][3:] == ("light", "Candle")
    found, arrays = catalogue(result["release"])
    old, _ = catalogue(base)
    assert numbers_by(result["release"], base) == [found.item_ids.index(item) for item in old.item_ids]
    new = found.item_ids.index("new-1")
    assert (arrays["neighbour_items"] == new).any(), "somebody has it as a neighbour"
    assert (arrays["neighbour_items"][new] >= 0).any()
    cohort = [[found.item_ids[n] for n in row if n >= 0] for row in arrays["cohort_items"]]
    old_arrays = catalogue(base)[1]
    assert cohort == [[old.item_ids[n] for n in row if n >= 0] for row in old_arrays["cohort_items"]]


def test_the_decoder_recalls_a_new_item(shop, tmp_path):
    result = ask(tmp_path, ["new-1,绿茶,tea"], promote=True)
    assert Registry().current().id == result["release"]
    found, arrays = catalogue(result["release"])
    new = found.item_ids.index("new-1")
    model = read_manifest(releases_dir() / result["release"], load_public_key(public_key_path())).content.model
    session = onnxruntime.InferenceSession(releases_dir() / result["release"] / DECODER)
    inputs = {
        "intent": np.zeros((1, model.state_rows, model.width), np.float32),
        "prompt": np.zeros((1, model.prompt_rows, model.width), np.float32),
        "neighbour_item": np.array([[new] + [-1] * 7]),
        "neighbour_score": np.full((1, 8), 5, np.float32),
        "exclude": np.full((1, 1), -1),
        "allow": np.full((1, 1), -1),
        "weights": np.array([1, 1, 1, 0.02], np.float32),
    }
    item, score = session.run(None, inputs | taken(arrays))
    assert new in item[0].tolist()
    assert np.isfinite(score).all()


def test_a_second_insertion_keeps_the_first_and_a_third_of_the_same_does_nothing(shop, tmp_path):
    first = ask(tmp_path, ["new-1,绿茶,tea"], promote=True)
    second = ask(tmp_path, ["new-2,green tea,tea"], promote=True)
    assert by_id(second["release"])["new-1"] == by_id(first["release"])["new-1"]
    assert second["items"] == NUM + 2
    third = ask(tmp_path, ["new-1,other title,tea", "new-2,green tea,tea"])
    assert (third["release"], third["new"], third["inserted"]) == (second["release"], False, 0)
    found = catalogue(second["release"])[0].item_ids
    for ancestor in (first["base"], first["release"]):
        assert numbers_by(second["release"], ancestor) == [
            found.index(item) for item in catalogue(ancestor)[0].item_ids
        ]


def test_a_list_that_is_full_gives_its_last_place():
    arrays = {path.stem: np.load(path) for path in (FIXTURE / "release/arrays").glob("*.npy")}
    grown = insert(arrays["item_codes"], np.zeros((3, 8, 6), np.float32), np.zeros((1, 6), np.float32))
    alike = find_alike(np.eye(NUM, dtype=np.float32), np.ones((1, NUM), np.float32))
    out = grown_arrays(arrays, grown, alike, np.zeros(NUM + 1, np.int64))
    new = int(grown.new[0])
    for old in alike.items[0]:
        row, before = out["neighbour_items"][grown.old[old]], arrays["neighbour_items"][old]
        assert new in row
        kept = [grown.old[n] for n in before if n >= 0][: len(before) - 1]
        assert [n for n in row if n not in (new, -1)][: len(kept)] == kept
        scores = out["neighbour_scores"][grown.old[old]]
        assert (np.diff(scores[row >= 0]) <= 0).all()


def test_an_array_that_the_rule_does_not_know_is_named():
    arrays = {path.stem: np.load(path) for path in (FIXTURE / "release/arrays").glob("*.npy")}
    grown = insert(arrays["item_codes"], np.zeros((3, 8, 6), np.float32), np.zeros((1, 6), np.float32))
    alike = find_alike(np.eye(NUM, dtype=np.float32), np.ones((1, NUM), np.float32))
    with pytest.raises(ReleaseError, match="item_colour"):
        grown_arrays(arrays | {"item_colour": np.zeros(NUM)}, grown, alike, np.zeros(NUM + 1, np.int64))


def test_stages_that_run_meanwhile_change_nothing_and_without_the_build_there_is_no_insertion(shop, tmp_path):
    shutil.rmtree(shop.work / "index")
    shutil.rmtree(shop.work / "encode")
    result = ask(tmp_path, ["new-1,绿茶,tea"])
    assert result["inserted"] == 1
    shutil.rmtree(shop.work / "insert" / result["base"])
    with pytest.raises(DataError, match="nothing is kept"):
        ask(tmp_path, ["new-2,绿茶,tea"])


def told(tmp_path, *changes, **more):
    raw = b"".join(encode_change(ItemChange(**{"title": "T"} | change)) + b"\n" for change in changes)
    (tmp_path / "changes.jsonl").write_bytes(raw)
    return ask(tmp_path, [], items=None, changes=tmp_path / "changes.jsonl", promote=True, **more)


def recalled(release):
    """Every item that the decoder can return, whatever it is asked."""
    found, arrays = catalogue(release)
    model = read_manifest(releases_dir() / release, load_public_key(public_key_path())).content.model
    session = onnxruntime.InferenceSession(releases_dir() / release / DECODER)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(30):
        near = rng.integers(0, len(found.item_ids), 8)
        near[near >= len(arrays["child_2"])] = -1  # as the readers make it
        inputs = {
            "intent": rng.standard_normal((1, model.state_rows, model.width)).astype(np.float32),
            "prompt": np.zeros((1, model.prompt_rows, model.width), np.float32),
            "neighbour_item": near[None],
            "neighbour_score": np.ones((1, 8), np.float32),
            "exclude": np.full((1, 1), -1),
            "allow": np.full((1, 1), -1),
            "weights": np.array([1, 1, 1, 0.02], np.float32),
        }
        item, _ = session.run(None, inputs | taken(arrays))
        seen |= {found.item_ids[number] for number in item[0] if number >= 0}
    lists = np.concatenate([arrays["neighbour_items"].ravel(), arrays["cohort_items"].ravel()])
    return seen | {found.item_ids[number] for number in lists[lists >= 0]}


AT = 1_700_000_000_000


def test_a_withdrawn_item_is_in_no_answer_and_comes_back(shop, tmp_path):
    base = Registry().current().id
    gone = ["item-003", "item-030", "new-1"]
    assert {"item-003", "item-030"} <= recalled(base)
    told(tmp_path, {"item_id": "new-1", "change": "added", "at": AT})
    result = told(tmp_path, *({"item_id": item, "change": "withdrawn", "at": AT + 1} for item in [*gone, "unknown"]))
    assert (result["withdrawn"], result["items"]) == (3, NUM - 2)
    assert not recalled(result["release"]) & set(gone)
    before, after = by_id(base), by_id(result["release"])
    assert all(after[item][1:] == before[item][1:] for item in before), "its rows stay: it is in histories"
    found, arrays = catalogue(result["release"])
    assert len(arrays["child_2"]) == NUM - 2
    assert set(found.item_ids[NUM - 2 :]) == set(gone)
    back = told(tmp_path, {"item_id": "item-003", "change": "changed", "at": AT + 2, "title": "New", "category": "tea"})
    assert back["withdrawn"] == 2
    assert "item-003" in recalled(back["release"])
    assert by_id(back["release"])["item-003"][3:] == ("tea", "New")
    for ancestor in (base, result["release"]):
        names = catalogue(back["release"])[0].item_ids
        assert numbers_by(back["release"], ancestor) == [names.index(item) for item in catalogue(ancestor)[0].item_ids]


def test_what_comes_again_or_late_changes_nothing(shop, tmp_path):
    added = {"item_id": "new-1", "change": "added", "at": AT}
    withdrawn = {"item_id": "new-1", "change": "withdrawn", "at": AT + 5}
    nothing = told(tmp_path, {**withdrawn, "at": AT - 1})
    assert (nothing["release"], nothing["new"]) == (nothing["base"], False)
    told(tmp_path, added)
    first = told(tmp_path, added, withdrawn)
    assert (first["new"], first["promoted"], first["withdrawn"]) == (True, True, 1)
    for again in ([added], [withdrawn], [added, withdrawn], [{**added, "at": AT + 4}], []):
        result = told(tmp_path, *again)
        assert (result["release"], result["new"], result["promoted"]) == (first["release"], False, False)


def test_a_new_build_begins_with_the_same_changes(shop, tmp_path, monkeypatch):
    told(
        tmp_path,
        {"item_id": "new-1", "change": "added", "at": AT},
        {"item_id": "item-003", "change": "withdrawn", "at": AT},
    )
    row = Registry().get(next(one.id for one in Registry().all() if one.status is Status.RETIRED))
    manifest = read_manifest(releases_dir() / row.path, load_public_key(public_key_path()))
    content = msgspec.structs.replace(manifest.content, parents=["next"])
    newer = msgspec.structs.replace(manifest, id=content_id(content), content=content)
    shutil.copytree(row.path, releases_dir() / newer.id)
    write_manifest(releases_dir() / newer.id, newer, load_private_key(FIXTURE / "release.pem"))
    Registry().publish(ReleaseRow(newer.id, newer.id, "y", {}, Status.FUTURE, newer.made_at + 1), why="test")
    Registry().promote(newer.id, why="test")
    keep_for_insertion(shop, newer.id)
    result = told(tmp_path)
    assert (result["base"], result["inserted"], result["withdrawn"], result["promoted"]) == (newer.id, 1, 1, True)


def test_no_item_is_left_and_bad_lines_are_named(shop, tmp_path):
    every = [{"item_id": f"item-{n:03d}", "change": "withdrawn", "at": AT} for n in range(NUM)]
    with pytest.raises(DataError, match="every item is withdrawn"):
        told(tmp_path, *every)
    (tmp_path / "bad.jsonl").write_bytes(b"\n{}\n")
    with pytest.raises(DataError, match=r"bad\.jsonl:2"):
        ask(tmp_path, [], items=None, changes=tmp_path / "bad.jsonl")
    with pytest.raises(DataError, match="can't be read"):
        ask(tmp_path, [], items=None, changes=tmp_path / "none.jsonl")


def test_superseded_insertions_are_deleted_but_the_newest(shop, tmp_path):
    base = Registry().current().id
    made = [told(tmp_path, {"item_id": f"new-{n}", "change": "added", "at": AT}, keep=2)["release"] for n in range(5)]
    left = {row.id for row in Registry().all()}
    assert left == {base, made[-1], *made[2:4]}
    assert not (releases_dir() / made[0]).exists()


def look(**more):
    given = {"id": None, "prefix": "", "release": None, "limit": 100} | more
    return verb.items(argparse.Namespace(**given))


def test_items_are_found_by_id_and_by_prefix(shop, tmp_path):
    inserted = ask(tmp_path, ["new-1,绿茶,tea"], promote=True)
    every = look()
    assert (every["release"], every["total"]) == (inserted["release"], NUM + 1)
    (one,) = look(id="new-1")["items"]
    assert one["title"] == "绿茶"
    first, second, *_ = one["sid"]
    under = look(prefix=f"{first}-{second}")
    wanted = [item["item_id"] for item in every["items"] if item["sid"][:2] == [first, second]]
    assert [item["item_id"] for item in under["items"]] == wanted
    assert look(prefix="99")["total"] == 0
    base = inserted["base"]
    with pytest.raises(DataError, match=r"no such item.*new-1"):
        look(id="new-1", release=base)
    with pytest.raises(DataError, match="a prefix is codes"):
        look(prefix="a,b")
    (releases_dir() / base / "arrays/child_0.npy").unlink()
    with pytest.raises(ReleaseError, match="can't be read"):
        look(release=base)
