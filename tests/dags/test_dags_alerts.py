"""What a late run leads to: a line in the log, and a post where one is asked for."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from dags import alerts

CONTEXT = {"dag_run": {"dag_run_id": "scheduled__1"}}


class Receiver(BaseHTTPRequestHandler):
    """Keeps what is posted."""

    posted: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.posted.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


def test_it_is_posted_and_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    answering = threading.Thread(target=server.handle_request)
    answering.start()
    monkeypatch.setenv(alerts.URL_VARIABLE, f"http://127.0.0.1:{server.server_port}")
    with caplog.at_level(logging.ERROR):
        asyncio.run(alerts.late(dag="generator", deadline_s=7200.0, context=CONTEXT))
    answering.join()
    server.server_close()
    (body,) = Receiver.posted
    assert json.loads(body) == {
        "alert": "DagLate",
        "dag": "generator",
        "deadline_s": 7200.0,
        "run": "scheduled__1",
        "runbook": "docs/runbook.md#daglate",
    }
    assert "generator has not ended within 7200 s" in caplog.text


@pytest.mark.parametrize(
    ("url", "said"), [("http://127.0.0.1:9", "could not be sent"), ("file:///x", "no http address")]
)
def test_an_alert_that_can_not_be_sent_is_still_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str, said: str
) -> None:
    monkeypatch.setenv(alerts.URL_VARIABLE, url)
    with caplog.at_level(logging.ERROR):
        asyncio.run(alerts.late(dag="lists", deadline_s=1.0))
    assert "lists has not ended" in caplog.text
    assert said in caplog.text
