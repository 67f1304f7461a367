"""``catalogue send``, ``withdraw`` and ``follow`` as a person meets them: refusals before anything is sent."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from prometheus_client import CollectorRegistry

from nearline.catalogue_served import BATCH, QUERY_BYTES, batches, check_url, last_words, wait_served
from nearline.catalogue_verb import withdrawals
from nearline.insertion import Insertion
from nearline.metrics import serve_metrics
from schemas.errors import DataError, StoreError
from schemas.item_change import Change, ItemChange

ROOT = Path(__file__).resolve().parent.parent.parent
AT = 1_700_000_000_000


def run(*words: str | bytes, **more: str) -> subprocess.CompletedProcess[str]:
    """Kafka is at a port that nobody has: what gets so far ends with exit code 5."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")}
    env |= {"BEFOREHAND_KAFKA": "127.0.0.1:9"} | more
    command = [sys.executable, "-m", "nearline", "catalogue", *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def test_a_file_of_bad_lines_only_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"item_id": "[/x]", "change": "[/y]", "at": 1}\n{\n')
    done = run("send", str(tmp_path / "bad.jsonl"), "--json")
    assert (done.returncode, json.loads(done.stdout)["where"]) == (3, "FILE")
    assert done.stderr.count("left out") == 2
    assert "[/y]" in done.stderr


@pytest.mark.parametrize("items", [b"a\xff", b""])
def test_what_is_no_id_is_an_error(items: bytes) -> None:
    done = run("withdraw", items, "--json")
    assert (done.returncode, json.loads(done.stdout)["where"]) == (3, "ITEM")


def test_a_file_name_that_is_not_utf8_can_be_told() -> None:
    done = run("send", b"none\xff.jsonl", "--json")
    assert (done.returncode, json.loads(done.stdout)["where"]) == (3, "none\\udcff.jsonl")


@pytest.mark.parametrize(
    "url", ["x", "", "ftp://127.0.0.1", "http://", "http://[x", "http://a:b", "http://a/?q", "http://a b"]
)
def test_an_address_is_looked_at_before_anything_is_sent(url: str) -> None:
    with pytest.raises(DataError) as caught:
        check_url(url, "--url")
    assert (caught.value.where, caught.value.value) == ("--url", url)


def test_the_verb_looks_at_the_address_first() -> None:
    done = run("withdraw", "a", "--wait", "--url", "", "--json")
    assert (done.returncode, json.loads(done.stdout)["where"]) == (3, "--url")
    done = run("withdraw", "a", "--wait", "--json", BEFOREHAND_ONLINE="localhost:8700")
    assert (done.returncode, json.loads(done.stdout)["where"]) == (3, "BEFOREHAND_ONLINE")


def test_an_address_is_taken_as_it_is() -> None:
    assert check_url("http://127.0.0.1:8700/", "--url") == "http://127.0.0.1:8700"
    assert check_url("https://shop.example/look-up", "--url") == "https://shop.example/look-up"


@pytest.mark.parametrize("words", [("--keep", "-1"), ("--every", "nan"), ("--every", "-1"), ("--until-idle", "inf")])
def test_numbers_that_mean_nothing_are_refused(words: tuple[str, str]) -> None:
    done = run("follow", *words)
    assert done.returncode == 2
    assert f"{words[0]}: " in done.stderr
    assert f"0 or more (got '{words[1]}')" in done.stderr


def test_a_wrong_override_is_told_at_the_start() -> None:
    done = run("follow", "--set", "index.no_such=1", "--json")
    assert done.returncode == 2
    assert "no_such" in done.stdout


def test_overrides_reach_the_insertion() -> None:
    command = Insertion("shop", 3, ["index.encoder=multilingual", "model.epochs=2"])._command
    assert command[-2:] == ["--set=index.encoder=multilingual", "--set=model.epochs=2"]


def test_a_port_that_can_not_be_had_is_a_store_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (99999, -1, taken.getsockname()[1]):
            with pytest.raises(StoreError) as caught:
                serve_metrics(CollectorRegistry(), port, "127.0.0.1")
            assert (caught.value.where, caught.value.value) == ("--metrics-port", f"127.0.0.1:{port}")
    with pytest.raises(StoreError):
        serve_metrics(CollectorRegistry(), 0, "no..such")


def change(item: str, at: int = AT, title: str = "t") -> ItemChange:
    return ItemChange(item_id=item, change=Change.CHANGED, at=at, title=title)


def test_the_last_word_is_the_largest_time_and_of_equal_ones_the_later() -> None:
    sent = [change("a", AT + 1, "new"), change("a", AT, "old"), change("b", AT, "first"), change("b", AT, "second")]
    assert {item: one.title for item, one in last_words(sent).items()} == {"a": "new", "b": "second"}


def test_questions_are_cut_by_number_and_by_length() -> None:
    short, long = [str(n) for n in range(1000)], ["ü" * 250 + str(n) for n in range(20)]
    for ids in (short, long, [*short, *long], []):
        cut = list(batches(ids))
        assert [one for some in cut for one in some] == ids
        assert all(0 < len(some) <= BATCH for some in cut)
        assert all(len(urlencode([("ids", one) for one in some])) <= QUERY_BYTES for some in cut)
    assert len(list(batches(short))) == 3


def test_withdrawals_are_of_now() -> None:
    found = withdrawals(["a", "b"])
    assert [(one.item_id, one.change) for one in found] == [("a", "withdrawn"), ("b", "withdrawn")]


class Service(ThreadingHTTPServer):
    """Answers any question with one status, and with each asked item titled ``t``."""

    daemon_threads = True
    status = 200
    body: bytes | None = None
    asked: list[int]


class Answer(BaseHTTPRequestHandler):
    server: Service  # type: ignore[assignment]

    def do_GET(self) -> None:
        query = urlsplit(self.path).query
        self.server.asked.append(len(query))
        told = {"items": {item: {"title": "t"} for _, item in parse_qsl(query)}}
        raw = self.server.body if self.server.body is not None else json.dumps(told).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def service() -> Iterator[Service]:
    server = Service(("127.0.0.1", 0), Answer)
    server.asked = []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def url_of(service: Service) -> str:
    return f"http://127.0.0.1:{service.server_port}"


def test_long_ids_are_asked_for_in_questions_that_fit(service: Service) -> None:
    wait_served(url_of(service), [change("ü" * 200 + str(n)) for n in range(100)])
    assert len(service.asked) > 1
    assert max(service.asked) <= QUERY_BYTES


@pytest.mark.parametrize("status", [401, 404, 414, 503])
def test_an_error_is_told_by_its_status(service: Service, status: int) -> None:
    service.status = status
    with pytest.raises(StoreError) as caught:
        wait_served(url_of(service), [change("a")])
    assert (caught.value.where, caught.value.value) == (url_of(service), status)


def test_another_service_and_none_at_all_are_told_apart(service: Service) -> None:
    service.body = b"<html>"
    with pytest.raises(StoreError, match="not a look-up service's answer"):
        wait_served(url_of(service), [change("a")])
    with pytest.raises(StoreError, match="does not answer") as caught:
        wait_served("http://127.0.0.1:9", [change("a")])
    assert caught.value.where == "http://127.0.0.1:9"
