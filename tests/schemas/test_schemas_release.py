"""Releases and the registry: signed, whole, promoted in one step, never half."""

import threading
from pathlib import Path

import pytest

from schemas.errors import DataError, ReleaseError, StoreError
from schemas.freshness import Freshness, age_s
from schemas.graphs import clock_feature, decoder_arrays, gap_feature
from schemas.keys import candidates_key, state_key
from schemas.names import State
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import (
    Content,
    Manifest,
    Model,
    content_id,
    file_entry,
    load_private_key,
    load_public_key,
    read_manifest,
    verify_files,
    write_manifest,
)

MODEL = Model(
    width=8,
    window=4,
    state_rows=1,
    prompt_rows=1,
    local_events=2,
    levels=2,
    codes=4,
    num_items=3,
    num_buckets=1,
    neighbours=2,
    neighbour_decay=0.9,
    k_max=5,
    weights=[1, 1, 1, 0.1],
)


@pytest.fixture
def made(tmp_path: Path):
    key = load_private_key(tmp_path / "keys" / "release.pem", create=True)
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "decoder.onnx").write_bytes(b"graph")
    content = Content(
        model=MODEL, files={"decoder.onnx": file_entry(folder / "decoder.onnx")}, minimum_runtimes={"opset": "20"}
    )
    write_manifest(folder, Manifest(id=content_id(content), content=content, metrics={}, made_at=1), key)
    return folder, load_public_key(tmp_path / "keys" / "release.pub")


def test_a_whole_release_is_accepted(made):
    folder, public = made
    manifest = read_manifest(folder, public)
    verify_files(folder, manifest)
    assert manifest.content.model == MODEL


def test_the_private_key_is_private(tmp_path: Path):
    load_private_key(tmp_path / "k.pem", create=True)
    assert (tmp_path / "k.pem").stat().st_mode & 0o077 == 0


def test_what_is_no_key_is_refused_by_name(tmp_path: Path):
    (tmp_path / "k.pem").write_text("nonsense")
    for load in (load_private_key, load_public_key):
        with pytest.raises(ReleaseError, match=r"k\.pem: not a"):
            load(tmp_path / "k.pem")
        with pytest.raises(ReleaseError, match="no key"):
            load(tmp_path / "none.pem")


def test_a_changed_byte_is_refused(made):
    folder, public = made
    (folder / "decoder.onnx").write_bytes(b"grapH")
    with pytest.raises(ReleaseError, match=r"decoder\.onnx: the file differs"):
        verify_files(folder, read_manifest(folder, public))
    (folder / "decoder.onnx").unlink()
    with pytest.raises(ReleaseError, match="missing"):
        verify_files(folder, read_manifest(folder, public))


def test_a_changed_manifest_another_key_or_none_is_refused(made, tmp_path: Path):
    folder, public = made
    other = load_private_key(tmp_path / "o.pem", create=True).public_key()
    with pytest.raises(ReleaseError, match="signature"):
        read_manifest(folder, other)
    raw = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(raw.replace(b'"opset": "20"', b'"opset": "99"'))
    with pytest.raises(ReleaseError, match="signature"):
        read_manifest(folder, public)
    with pytest.raises(ReleaseError, match="not a release"):
        read_manifest(tmp_path / "nowhere", public)


def test_a_manifest_cannot_name_a_file_outside(made, tmp_path: Path):
    folder, public = made
    key = load_private_key(tmp_path / "keys" / "release.pem")
    (tmp_path / "secret").write_bytes(b"x")
    content = Content(model=MODEL, files={"../secret": file_entry(tmp_path / "secret")}, minimum_runtimes={})
    write_manifest(folder, Manifest(id=content_id(content), content=content, metrics={}, made_at=1), key)
    with pytest.raises(ReleaseError, match="outside"):
        verify_files(folder, read_manifest(folder, public))


def row(name: str, made_at: int = 0) -> ReleaseRow:
    return ReleaseRow(name, f"/r/{name}", f"in-{name}", {"recall_at_50": 0.2}, Status.FUTURE, made_at)


@pytest.fixture
def registry(tmp_path: Path):
    return Registry(f"sqlite:///{tmp_path / 'registry.db'}")


def test_publish_promote_rollback(registry: Registry):
    assert registry.current() is None
    assert registry.publish(row("a", 1), why="first")
    assert not registry.publish(row("a", 1), why="again")
    assert registry.publish(row("b", 2), why="second")
    assert registry.promote("a", why="go")
    assert not registry.promote("a", why="go")
    assert registry.promote("b", why="go")
    assert [(r.id, r.status) for r in registry.all()] == [("b", Status.CURRENT), ("a", Status.BACKUP)]
    assert registry.rollback(why="worse") == "a"
    current = registry.current()
    assert current is not None
    assert current.id == "a"
    assert [act["act"] for act in registry.history()] == ["promote", "promote", "promote", "publish", "publish"]
    built = registry.built_from("in-b")
    assert built is not None
    assert built.id == "b"


def test_a_bad_release_is_promoted_only_by_force(registry: Registry):
    registry.publish(row("a"), why="")
    registry.mark_bad("a", why="NaN")
    with pytest.raises(ReleaseError, match="bad"):
        registry.promote("a", why="hope")
    assert registry.promote("a", why="sure", force=True)
    with pytest.raises(ReleaseError, match="current"):
        registry.mark_bad("a", why="now")


def test_a_bad_release_stays_bad_when_another_takes_over(registry: Registry):
    for name in "abc":
        registry.publish(row(name), why="")
    registry.promote("a", why="")
    registry.promote("b", why="")
    registry.mark_bad("a", why="worse")
    registry.promote("c", why="")
    assert registry.get("a").status is Status.BAD


def test_unknown_releases_and_no_backup(registry: Registry):
    with pytest.raises(ReleaseError, match="no such release"):
        registry.promote("x", why="")
    with pytest.raises(ReleaseError, match="no backup"):
        registry.rollback(why="")


def test_two_operators_at_once_leave_one_current(registry: Registry):
    for name in "abcdef":
        registry.publish(row(name), why="")
    done: list[str] = []

    def promote(name: str):
        try:
            registry.promote(name, why="")
            done.append(name)
        except StoreError as error:
            done.append(str(error))

    threads = [threading.Thread(target=promote, args=(n,)) for n in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = [r.status for r in registry.all()]
    assert statuses.count(Status.CURRENT) == 1
    assert statuses.count(Status.BACKUP) <= 1
    assert len(done) == 6
    promoted = [name for name in done if len(name) == 1]
    assert promoted
    assert sum(act["act"] == "promote" for act in registry.history()) == len(promoted)


ODD = ["a", "a}b", "{a}", "a:b", "a%7D", "ab", "bc", "ü", "👍", "a b", "a/b", "%61"]


def test_no_two_users_share_a_key():
    keys = [f(u) for f in (state_key, candidates_key) for u in ODD]
    assert len(set(keys)) == len(keys)
    assert all(k.count("{") == 1 and k.count("}") == 1 for k in keys)
    assert state_key("u")[: state_key("u").index("}")] == candidates_key("u")[: candidates_key("u").index("}")]


@pytest.mark.parametrize("bad", ["", "a\nb", "\x00", "x" * 257, "\ud800"])
def test_bad_user_ids_are_refused_by_name(bad: str):
    with pytest.raises(DataError, match="user_id"):
        state_key(bad)


@pytest.mark.parametrize(
    ("age", "state"), [(0, State.FRESH), (30, State.FRESH), (60, State.FRESH), (61, State.STALE), (301, State.EXPIRED)]
)
def test_ages(age: int, state: State):
    assert Freshness(60, 300).judge(age) is state


def test_the_future_has_age_zero():
    assert age_s(made_at_ms=61_000, now_ms=1_000) == 0


def test_features():
    assert gap_feature(-5) == 0
    assert gap_feature(3_600_000) == pytest.approx(0.6931, abs=1e-4)
    monday_noon = 1_700_481_600_000  # 2023-11-20 12:00 UTC
    sin_hour, cos_hour, sin_week, _ = clock_feature(monday_noon)
    assert (sin_hour, cos_hour) == (pytest.approx(0, abs=1e-6), pytest.approx(-1))
    assert sin_week == pytest.approx(0.4339, abs=1e-3)  # half a day into the week
    assert decoder_arrays(2)[:3] == ("offset_0", "child_0", "fan_0")
