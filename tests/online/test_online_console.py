"""The console's page: served without a key, holds no data, changes nothing; what it asks for needs the key."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from online.app import App
from online.console_route import NAMES, Console
from online.http import RefusedError
from online.service import Recall
from online.store import Store
from schemas.locations import ROOT

FOLDER = ROOT / "online" / "console"


@pytest.fixture
def client(plan, releases, redis_url):
    store = Store(redis_url, timeout_s=1.0, cache_bytes=0)
    app = App(Recall(plan, store, releases), 5.0, api_key="secret")
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service")


async def get(client, path, **headers):
    async with client:
        return await client.get(path, headers=headers)


def run(coroutine):
    import asyncio

    return asyncio.run(coroutine)


def test_the_page_needs_no_key_and_takes_nothing_from_elsewhere(client):
    answer = run(get(client, "/console/"))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert not re.search(r'(src|href)="(?!/console/)', answer.text)


def test_without_the_slash_it_is_sent_on(client):
    answer = run(get(client, "/console"))
    assert (answer.status_code, answer.headers["location"]) == (308, "/console/")


@pytest.mark.parametrize(
    "path", ["/console/../app.py", "/console/index.html.gz", "/console/%2e%2e/app.py", "/console/x"]
)
def test_nothing_else_is_served(client, path):
    assert run(get(client, path)).status_code == 404


def test_what_it_asks_for_needs_the_key(client):
    assert run(get(client, "/v1/releases")).status_code == 401


def test_it_can_only_read():
    for name in ("console.js", "metrics.js"):
        text = (FOLDER / name).read_text()
        assert "method:" not in text
        assert "innerHTML" not in text
        assert not re.search(r"https?://", text)


def test_every_file_that_is_named_is_there():
    assert {path.name for path in FOLDER.iterdir()} == set(NAMES.values())
    asked = re.findall(r'"/console/([^"]+)"', "".join(path.read_text() for path in FOLDER.iterdir()))
    assert set(asked) <= set(NAMES)


def test_it_reads_the_metrics_that_the_service_has():
    from online.metrics import Metrics

    metrics = Metrics()
    metrics._stage.of("queue").observe(0.01)
    metrics._total.observe(0.01)
    exported = {name for one in metrics.registry.collect() for name in (f"{one.name}_total", one.name)}
    exported |= {f"{name}{suffix}" for name in set(exported) for suffix in ("_sum", "_count")}
    asked = set(re.findall(r'"(beforehand_\w+)"', (FOLDER / "console.js").read_text()))
    assert asked
    assert asked <= exported


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node to run the page's pure part")
def test_the_text_format_is_read_as_prometheus_reads_it(tmp_path: Path):
    script = tmp_path / "try.mjs"
    script.write_text(
        f'import {{ parse, total, byLabel, grown }} from "{FOLDER / "metrics.js"}";\n'
        'const a = parse(\'# HELP x y\\nx{r="a",q="\\\\"}"} 2\\nx{r="b"} 3\\ny 1e3\\n\');\n'
        'const b = parse(\'x{r="a",q="\\\\"}"} 5\\nx{r="b"} 1\\n\');\n'
        'console.log(JSON.stringify([total(a, "x"), total(a, "x", { r: "a" }), total(a, "y"),\n'
        '  [...byLabel(a, "x", "r")], [...byLabel(grown(a, b, "x"), "x", "r")]]));\n'
    )
    done = subprocess.run(["node", str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == '[5,2,1000,[["a",2],["b",3]],[["a",3],["b",1]]]'


def test_the_handler_refuses_what_it_does_not_have():
    scope = {"raw_path": b"/console/secret", "headers": []}
    with pytest.raises(RefusedError):
        run(Console()(scope, None, None))
