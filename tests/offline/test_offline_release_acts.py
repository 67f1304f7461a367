"""Canary, garbage collection and object stores, by the verb as an operator types it."""

import argparse
import http.server
import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
import s3fs
from hypothesis import given
from hypothesis import strategies as st

from infra.environments import project_python
from infra.paths import Layout
from offline import releases
from offline.release_gc import removable
from offline.release_store import Store
from schemas.errors import ReleaseError, StoreError
from schemas.locations import releases_dir
from schemas.registry import Pointer, Registry, ReleaseRow, Status
from schemas.registry.leases import take
from schemas.release import Content, Manifest, content_id, file_entry, load_private_key, write_manifest

FIXTURES = Path(__file__).parents[1] / "fixtures"
OBJECT_STORE = Path(__file__).parent / "object_store"
MODEL = msgspec.json.decode((FIXTURES / "release" / "manifest.json").read_bytes(), type=Manifest).content.model


def run(*words: str):
    parser = argparse.ArgumentParser()
    releases.arguments(parser)
    return releases.release(parser.parse_args(list(words)))


def make(name: str, made_at: int) -> str:
    """A signed release with one file, registered; returns its id."""
    key = load_private_key(releases_dir().parent / "keys" / "release.pem", create=True)
    draft = releases_dir() / name
    (draft / "arrays").mkdir(parents=True)
    (draft / "arrays" / "one.npy").write_bytes(name.encode() * 100)
    files = {"arrays/one.npy": file_entry(draft / "arrays" / "one.npy")}
    content = Content(model=MODEL, files=files, minimum_runtimes={})
    manifest = Manifest(id=content_id(content), content=content, metrics={}, made_at=made_at)
    write_manifest(draft, manifest, key)
    draft.rename(releases_dir() / manifest.id)
    row = ReleaseRow(manifest.id, str(releases_dir() / manifest.id), name, {}, Status.FUTURE, made_at)
    Registry().publish(row, why="made")
    return manifest.id


@pytest.fixture
def made(monkeypatch):
    """Six old releases, oldest first: the fourth is current, the third its backup, the fifth is tried."""
    monkeypatch.delenv("BEFOREHAND_ONLINE", raising=False)
    monkeypatch.delenv("BEFOREHAND_STORE", raising=False)
    ids = [make(f"r{n}", 1000 + n) for n in range(6)]
    for name in ids[2:4]:
        run("promote", name)
    run("canary", ids[4], "--share", "0.1", "--why", "try")
    return ids


def there() -> set[str]:
    return {path.name for path in releases_dir().iterdir()}


def test_gc_deletes_what_nobody_needs_and_only_when_told(made):
    said = run("gc", "--keep", "1")
    assert said["releases"] == [made[1], made[0]]
    assert not said["deleted"] and said["bytes"] > 400
    assert there() == set(made)
    done = run("gc", "--keep", "1", "--yes", "--why", "disk")
    assert (done["releases"], done["bytes"]) == (said["releases"], said["bytes"])
    assert there() == set(made[2:])
    assert {row.id for row in Registry().all()} == set(made[2:])
    assert run("gc", "--keep", "1", "--yes")["releases"] == []
    assert run("rollback", "--why", "worse")["release"] == made[2]
    assert [a["act"] for a in Registry().history() if a["release"] == made[0]] == ["gc", "publish"]


def test_gc_leaves_young_ones(made):
    young = make("young", 4_000_000_000_000)
    assert young not in run("gc", "--keep", "0")["releases"]


def test_a_bad_release_that_was_deleted_is_still_bad(made):
    run("bad", made[0], "--why", "NaN")
    run("gc", "--keep", "0", "--yes")
    assert made[0] not in there()
    assert Registry().get(made[0]).status is Status.BAD


class _Service(http.server.BaseHTTPRequestHandler):
    said: ClassVar[dict] = {}

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.said).encode())

    def log_message(self, format, *args):
        pass


def test_gc_keeps_what_a_service_uses_and_does_nothing_when_one_is_silent(made):
    _Service.said = {"current": made[3], "previous": made[0], "canary": made[1], "answered": {}}
    with http.server.HTTPServer(("127.0.0.1", 0), _Service) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert run("gc", "--keep", "0", "--url", url)["releases"] == [made[5]]
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(StoreError, match="does not say what it serves"):
        run("gc", "--keep", "0", "--yes", "--url", url)
    assert there() == set(made)


STATUSES = st.sampled_from([Status.FUTURE, Status.RETIRED, Status.BAD])
ROWS = st.lists(st.tuples(STATUSES, st.integers(0, 20)), max_size=8)


@given(ROWS, st.integers(0, 4), st.integers(0, 20), st.sets(st.integers(0, 7)), st.integers(-1, 7))
def test_what_may_go_by_the_naive_rule(found, keep, before, used, current):
    canary = current + 1
    rows = [ReleaseRow(str(n), "", "", {}, status, at) for n, (status, at) in enumerate(found)]
    pointer = Pointer(current=str(current), backup=None, canary=str(canary))
    in_use = {str(n) for n in used}
    got = {row.id for row in removable(rows, pointer, in_use, keep=keep, made_before_ms=before)}
    free = [r for r in rows if r.id not in in_use and r.id not in (str(current), str(canary))]
    for row in free:
        newer = sum((o.made_at, -int(o.id)) > (row.made_at, -int(row.id)) for o in free)
        assert (row.id in got) == (newer >= keep and row.made_at < before)
    assert got <= {row.id for row in free}


def test_two_operators_at_once_the_second_is_told(made):
    take(Registry().database, "promotion", about="release promote x: new season", who="ann@elsewhere:1")
    for act in (("promote", made[5], "--force", "--why", "me"), ("rollback", "--why", "me"), ("gc", "--yes")):
        with pytest.raises(StoreError, match="ann@elsewhere:1 holds it: release promote x: new season"):
            run(*act)
    assert there() == set(made)


def test_a_damaged_release_is_not_tried(made):
    run("end-canary", "--why", "other")
    (releases_dir() / made[5] / "arrays" / "one.npy").write_bytes(b"x")
    with pytest.raises(ReleaseError, match="differs"):
        run("canary", made[5])


@pytest.fixture(scope="module")
def s3():
    """The address of an S3 on the loopback, by Moto in an environment of its own."""
    python = project_python(Layout.current(), "object_store", OBJECT_STORE, size_gb=0.2)
    with subprocess.Popen([python, OBJECT_STORE / "serve.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        port = int(server.stdout.readline())
        yield f"http://127.0.0.1:{port}"
        server.stdin.close()


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.slow)])
def url(request, tmp_path, monkeypatch):
    if request.param == "s3":
        address = {"AWS_ENDPOINT_URL": request.getfixturevalue("s3"), "AWS_DEFAULT_REGION": "us-east-1"}
        for name, value in {**address, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("shop")
        return "s3://shop/releases"
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"file://{tmp_path / 'store'}"


def test_a_release_goes_to_a_store_and_comes_back_whole(made, url):
    assert Store(url).ids() == []
    assert run("push", made[5], "--store", url)["changed"]
    assert not run("push", made[5], "--store", url)["changed"]
    assert run("store", "--store", url)["releases"] == [made[5]]
    run("gc", "--keep", "0", "--yes", "--why", "another host")  # without --store: only here
    assert made[5] not in there()
    with pytest.raises(ReleaseError, match="no such release"):
        run("promote", made[5])
    assert run("fetch", made[5], "--store", url)["files"] == 1
    assert run("verify", made[5])["verified"]
    assert Registry().get(made[5]).status is Status.FUTURE
    run("gc", "--keep", "0", "--yes", "--store", url)
    assert Store(url).ids() == []
    with pytest.raises(ReleaseError, match="no such release in the store"):
        run("fetch", made[5], "--store", url)


def test_a_damaged_copy_is_refused_and_leaves_nothing(made, tmp_path):
    url = f"file://{tmp_path / 'store'}"
    run("push", made[5], "--store", url)
    shutil.rmtree(releases_dir() / made[5])
    (tmp_path / "store" / made[5] / "arrays" / "one.npy").write_bytes(b"x")
    with pytest.raises(ReleaseError, match="differs"):
        run("fetch", made[5], "--store", url)
    assert made[5] not in there()
    assert not [name for name in there() if name.startswith(".draft")]
    (tmp_path / "store" / made[5] / "manifest.sig").unlink()  # a copy that was cut off is none
    assert Store(url).ids() == []


def test_a_store_that_fails_is_named(made):
    with pytest.raises(StoreError, match="no object store is named"):
        run("push", made[5])
    with pytest.raises(StoreError, match="can't be opened"):
        run("push", made[5], "--store", "nosuch://x")
    with pytest.raises(StoreError, match="the store failed"):
        run("push", made[5], "--store", "file:///proc/nothing/here")


def test_a_deleted_bad_release_is_not_deleted_again(made):
    run("bad", made[0], "--why", "wrong prices")
    assert made[0] in run("gc", "--keep", "0", "--yes")["releases"]
    acts = len(Registry().history())
    assert run("gc", "--keep", "0", "--yes")["releases"] == []
    assert len(Registry().history()) == acts


def test_gc_refuses_what_it_can_not_read(made):
    with pytest.raises(ReleaseError, match="--keep"):
        run("gc", "--keep", "-1")
    with pytest.raises(StoreError, match="does not say what it serves"):
        run("gc", "--url", "http://127.0.0.1:abc")
    assert there() == set(made)


def test_rollback_of_a_named_release_is_done_once(made):
    said = run("rollback", made[3], "--why", "late answers")
    assert said == {"release": made[2], "changed": True}
    assert run("rollback", made[3], "--why", "late answers") == {"release": made[2], "changed": False}


def test_a_reason_with_brackets_is_shown_as_it_was_typed(made, capsys):
    run("bad", made[0], "--why", "[/b] shelf [red]")
    run("show", made[0])
    assert "[/b] shelf [red]" in capsys.readouterr().err
