"""Files for devices, over real HTTP: lifetimes, ETags, gzip, origins, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import shutil
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn
from test_online_service import Shelf

from online import files
from online.app import App
from online.edge_routes import POLICY, EdgeRoutes, read_origins
from online.files import Files, accepts_gzip, matches, read_file
from online.server import check_shop, listen
from online.service import Recall
from schemas.errors import BeforehandError
from schemas.locations import ROOT

BUNDLES = ROOT / "edge" / "vectors" / "bundle"
ORIGIN = "https://shop.example"


@pytest.fixture
def folder(tmp_path) -> Path:
    """Bundles as `edge bundle` and `edge rollout` leave them, and things beside them that are no one's business."""
    folder = Path(shutil.copytree(BUNDLES, tmp_path / "state" / "edge"))
    (tmp_path / "state" / "registry.db").write_text("secret")
    (folder / "notes.txt").write_text("secret")
    (folder / ".0123456789abcdef.part").mkdir()
    (folder / ".0123456789abcdef.part" / "model.onnx").write_text("secret")
    return folder


@pytest.fixture
def bundle(folder) -> str:
    return next(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")


@pytest.fixture
def site(tmp_path) -> Path:
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<!doctype html><title>shop</title>")
    (site / "main.js").write_text("1;")
    (site / "ort.wasm").write_bytes(b"\0asm")
    return site


@pytest.fixture
def serve(plan, releases, folder, site):
    """Starts the application on the loopback; yields the function that does, which gives a client."""
    running = []

    def start(*, origins: str = "", api_key: str | None = None, shop: bool = True) -> httpx.Client:
        recall = Recall(plan, Shelf(), releases)
        routes = EdgeRoutes(folder, site if shop else None, read_origins(origins), recall.metrics.registry)
        app = App(recall, 5.0, api_key=api_key, files=routes)
        server = uvicorn.Server(uvicorn.Config(app, http="httptools", lifespan="on", log_level="warning"))
        listener = listen("127.0.0.1", 0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        port = listener.getsockname()[1]
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"accept-encoding": "identity"})
        running.append((recall, server, thread, client))
        while not server.started:
            time.sleep(0.01)
        return client

    yield start
    for recall, server, thread, client in running:
        client.close()
        server.should_exit = True
        thread.join()
        recall.decoder.close()


def error_of(response: httpx.Response) -> dict:
    body = response.json()
    assert set(body) == {"error", "where", "mend"}
    return body


def listed(folder: Path, bundle: str) -> dict:
    envelope = json.loads((folder / bundle / "manifest.json").read_text())
    return json.loads(envelope["payload"])["content"]["files"]


def test_every_file_of_a_bundle_is_served_for_ever_under_the_digest_in_the_manifest(serve, folder, bundle):
    client = serve()
    names = listed(folder, bundle)
    assert {"model.onnx", "model.ort", "defaults.bin", "codes/0.bin"} <= set(names)
    for name, entry in names.items():
        response = client.get(f"/v1/edge/{bundle}/{name}")
        assert response.status_code == 200
        assert response.content == (folder / bundle / name).read_bytes()
        assert response.headers["etag"] == f'"{entry["sha256"]}"'
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.headers["content-length"] == str(entry["num_bytes"])
        assert response.headers["x-content-type-options"] == "nosniff"
    assert client.get(f"/v1/edge/{bundle}/manifest.json").headers["content-type"] == "application/json"


def test_the_roll_out_is_short_lived_and_followed_at_once(serve, folder):
    client = serve()
    first = client.get("/v1/edge/current.json")
    assert first.headers["cache-control"] == "public, max-age=60"
    assert first.content == (folder / "current.json").read_bytes()
    known = {"if-none-match": first.headers["etag"]}
    unchanged = client.get("/v1/edge/current.json", headers=known)
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["etag"] == first.headers["etag"]
    part = folder / "current.json.part"
    part.write_text('{"another": 1}')
    part.replace(folder / "current.json")
    second = client.get("/v1/edge/current.json", headers=known)
    assert (second.status_code, second.json()) == (200, {"another": 1})
    (folder / "current.json").unlink()
    gone = client.get("/v1/edge/current.json", headers=known)
    assert gone.status_code == 404
    assert "edge rollout" in error_of(gone)["mend"]


def test_gzip_is_sent_to_whoever_takes_it_with_an_etag_of_its_own(serve, folder, bundle):
    client = serve()
    path = f"/v1/edge/{bundle}/model.onnx"
    plain = client.get(path)
    packed = client.get(path, headers={"accept-encoding": "br, gzip;q=0.5"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.headers["content-type"] == plain.headers["content-type"]
    again = {"accept-encoding": "gzip", "if-none-match": packed.headers["etag"]}
    assert client.get(path, headers=again).status_code == 304
    crossed = {"accept-encoding": "identity", "if-none-match": packed.headers["etag"]}
    assert client.get(path, headers=crossed).status_code == 200
    bare = client.get(f"/v1/edge/{bundle}/codes/0.bin", headers={"accept-encoding": "gzip"})
    has_gzip = (folder / bundle / "codes" / "0.bin.gz").exists()
    assert ("content-encoding" in bare.headers) is has_gzip


@pytest.mark.parametrize(
    ("given", "accepts"),
    [
        (b"", False),
        (b"gzip", True),
        (b"GZIP", True),
        (b"br, gzip;q=0.1", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.0, *", False),
        (b"*", True),
        (b"*;q=0", False),
        (b"identity, gzip;q=x", False),
        (b"xgzip", False),
    ],
)
def test_what_accepts_gzip(given, accepts):
    assert accepts_gzip(given) is accepts


@pytest.mark.parametrize(
    ("given", "has"),
    [(b"", False), (b'"a"', True), (b'W/"a"', True), (b'"b", "a"', True), (b"*", True), (b'"b"', False), (b"a", False)],
)
def test_what_the_client_has(given, has):
    assert matches(given, b'"a"') is has


def raw_get(client: httpx.Client, target: str) -> tuple[int, bytes]:
    """As it is written: clients tidy paths up."""
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port)
    connection.putrequest("GET", target, skip_accept_encoding=True)
    connection.endheaders()
    response = connection.getresponse()
    given = response.status, response.read()
    connection.close()
    return given


@pytest.mark.parametrize(
    "name",
    [
        "../registry.db",
        "%2e%2e/registry.db",
        "..%2fregistry.db",
        "..%5cregistry.db",
        "{bundle}/../../registry.db",
        "{bundle}/codes/../../../registry.db",
        "{bundle}/..%2f..%2fregistry.db",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "notes.txt",
        ".0123456789abcdef.part/model.onnx",
        "{bundle}/model.onnx.gz",
        "{bundle}/manifest.json%00",
        "{bundle}/manifest.json/",
        "{bundle}/codes",
        "{bundle}/codes/99999999.bin",
        "{bundle}",
        "",
        "0123456789abcdef/manifest.json",
        "x" * 5000,
    ],
)
def test_nothing_else_is_served(serve, bundle, name):
    status, body = raw_get(serve(), f"/v1/edge/{name.format(bundle=bundle)}")
    assert status == 404
    assert set(json.loads(body)) == {"error", "where", "mend"}
    assert b"secret" not in body
    assert len(body) < 500


@pytest.mark.parametrize(
    "name", ["../edge/notes.txt", "%2e%2e/registry.db", ".env", "a/b.js", "Main.js", "main.js.map.x.y"]
)
def test_the_shop_has_one_folder(serve, name):
    status, body = raw_get(serve(), f"/shop/{name}")
    assert (status, b"secret" in body) == (404, False)


def test_a_link_out_of_the_folder_is_not_followed(serve, folder, bundle, tmp_path):
    target = folder / bundle / "codes" / "999999.bin"
    target.symlink_to(tmp_path / "state" / "registry.db")
    assert serve().get(f"/v1/edge/{bundle}/codes/999999.bin").status_code == 404
    target.unlink()
    target.mkdir()
    assert read_file(folder, f"{bundle}/codes/999999.bin") is None


def test_a_file_too_large_is_not_read(folder, bundle, monkeypatch):
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 1000)
    assert read_file(folder, f"{bundle}/model.onnx") is None
    assert read_file(folder, "notes.txt") is not None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_files_are_only_fetched(serve, bundle, method):
    client = serve()
    for path in ("/v1/edge/current.json", "/shop/"):
        response = client.request(method, path)
        assert response.status_code == 405
        assert error_of(response)["where"] == method


def test_head_says_what_get_would(serve):
    client = serve()
    got, headed = client.get("/v1/edge/current.json"), client.head("/v1/edge/current.json")
    assert (headed.status_code, headed.content) == (200, b"")
    assert dict(headed.headers) == dict(got.headers)


def test_other_origins_read_nothing_unless_set(serve):
    silent = serve().get("/v1/edge/current.json", headers={"origin": ORIGIN})
    assert "access-control-allow-origin" not in silent.headers
    client = serve(origins=f"{ORIGIN}, http://127.0.0.1:8080")
    allowed = client.get("/v1/edge/current.json", headers={"origin": ORIGIN})
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    assert "origin" in allowed.headers["vary"]
    other = client.get("/v1/edge/current.json", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in other.headers
    assert "origin" in other.headers["vary"], "a cache must keep the two apart"
    assert "access-control-allow-origin" not in client.get("/shop/", headers={"origin": ORIGIN}).headers


@pytest.mark.parametrize("setting", ["*", "shop.example", "https://shop.example/path", "https://a b", "null"])
def test_what_is_no_origin_is_named(setting):
    with pytest.raises(BeforehandError, match="BEFOREHAND_EDGE_ORIGINS"):
        read_origins(setting)


def test_devices_have_no_key_and_need_none(serve, bundle):
    client = serve(api_key="k3y", shop=False)
    assert client.get("/v1/edge/current.json").status_code == 200
    assert client.get(f"/v1/edge/{bundle}/manifest.json").status_code == 200
    assert client.get("/v1/items?ids=1").status_code == 401
    assert client.get("/shop/").status_code == 404


def test_the_page_comes_with_its_policy(serve):
    client = serve()
    moved = client.get("/shop")
    assert (moved.status_code, moved.headers["location"]) == (308, "/shop/")
    for name, kind in (
        ("", "text/html; charset=utf-8"),
        ("main.js", "text/javascript"),
        ("ort.wasm", "application/wasm"),
    ):
        response = client.get(f"/shop/{name}")
        assert response.status_code == 200
        assert response.headers["content-type"].startswith(kind)
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["cache-control"] == "no-cache"
    assert "unsafe-inline" not in POLICY
    assert "'unsafe-eval'" not in POLICY


def test_fetches_are_counted_by_kind(serve, bundle):
    client = serve()
    etag = client.get("/v1/edge/current.json").headers["etag"]
    client.get("/v1/edge/current.json", headers={"if-none-match": etag})
    client.get(f"/v1/edge/{bundle}/codes/0.bin")
    client.get(f"/v1/edge/{bundle}/codes/999.bin")
    text = client.get("/metrics").text
    for kind, status in (("current", 200), ("current", 304), ("codes", 200), ("codes", 404)):
        assert f'beforehand_edge_files_total{{kind="{kind}",status="{status}"}} 1.0' in text


def test_memory_is_bounded_and_the_newest_stay(tmp_path):
    import asyncio

    for name in "abc":
        (tmp_path / f"{name}.bin").write_bytes(name.encode() * 400)

    async def run():
        held = Files(tmp_path, cache_bytes=1000)
        scope = {"headers": []}
        answers = await asyncio.gather(*(held.answer(f"{name}.bin", scope, ()) for name in "abcab"))
        return held, [given.body[:1] for given in answers]

    held, bodies = asyncio.run(run())
    assert bodies == [b"a", b"b", b"c", b"a", b"b"]
    assert sum(len(file.body) for file in held._cache.values()) == held._held_bytes <= 1000


def test_many_at_once_get_whole_files(serve, folder, bundle):
    client = serve()
    digests: list[str] = []

    def fetch():
        with httpx.Client(base_url=client.base_url, headers={"accept-encoding": "gzip"}) as own:
            digests.append(hashlib.sha256(own.get(f"/v1/edge/{bundle}/model.ort").content).hexdigest())

    threads = [threading.Thread(target=fetch) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    packed = folder / bundle / "model.ort.gz"
    assert set(digests) == {hashlib.sha256(gzip.decompress(packed.read_bytes())).hexdigest()}
    assert len(digests) == 12


def test_a_shop_needs_its_page_and_no_key(site, tmp_path):
    check_shop(None, "k3y")
    check_shop(site, None)
    for shop, api_key in ((site, "k3y"), (tmp_path / "nothing", None)):
        with pytest.raises(BeforehandError, match="--shop"):
            check_shop(shop, api_key)


def test_a_client_that_hangs_up_breaks_nothing(serve, bundle):
    client = serve()
    with socket.create_connection((client.base_url.host, client.base_url.port)) as one:
        one.sendall(f"GET /v1/edge/{bundle}/model.ort HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert client.get(f"/v1/edge/{bundle}/model.ort").status_code == 200
