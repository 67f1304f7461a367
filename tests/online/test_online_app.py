"""The HTTP contract: codecs, limits, refusals, documents."""

from __future__ import annotations

import asyncio
import base64
from urllib.parse import quote

import httpx
import msgspec
import numpy as np
import pytest
from online_values import NOW_MS, make_candidates, make_state
from test_online_service import Shelf

from online.app import MAX_BATCH, App
from online.http import MAX_BODY_BYTES
from online.releases import Loaded
from online.service import Recall
from schemas.api import Explanation, PromptEmbedding, RecallRequest, RecallResponse
from schemas.names import Reason, Rung

JSON, MSGPACK = "application/json", "application/msgpack"


@pytest.fixture
def recall(plan, releases, release):
    users = [make_state(release, user) for user in ("u1", "a/b c%d", "é🧼")]
    recall = Recall(plan, Shelf(*users, make_candidates(release)), releases, now_ms=lambda: NOW_MS)
    yield recall
    recall.decoder.close()


def send(recall, method, path, *, api_key=None, **arguments) -> httpx.Response:
    async def run():
        transport = httpx.ASGITransport(app=App(recall, 5.0, api_key=api_key))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            return await client.request(method, path, **arguments)

    return asyncio.run(run())


def post(recall, body, path="/v1/recall", **headers):
    return send(recall, "POST", path, content=body, headers={"content-type": JSON} | headers)


def error_of(response: httpx.Response) -> dict:
    body = response.json()
    assert set(body) == {"error", "where", "mend"}
    return body


def test_both_codecs_give_the_same_answer(recall, release):
    rows = np.ones((1, release.model.width), "<f4").tobytes()
    request = RecallRequest(user_id="u1", k=7, prompt=PromptEmbedding(release.id, rows, 1, 50))
    by_json = post(recall, msgspec.json.encode(request))
    by_msgpack = send(
        recall, "POST", "/v1/recall", content=msgspec.msgpack.encode(request), headers={"content-type": MSGPACK}
    )
    assert by_json.headers["content-type"] == JSON
    assert by_msgpack.headers["content-type"] == MSGPACK
    first = msgspec.json.decode(by_json.content, type=RecallResponse)
    second = msgspec.msgpack.decode(by_msgpack.content, type=RecallResponse)
    assert first.items == second.items
    assert len(first.items) == 7
    assert first.assets == second.assets
    assert first.assets["prompt_embedding"].reason is Reason.OK


def test_the_answers_codec_can_be_asked_for(recall):
    body = b'{"user_id": "u1"}'
    assert post(recall, body, accept=MSGPACK).headers["content-type"] == MSGPACK
    assert post(recall, body, accept="*/*").headers["content-type"] == JSON
    assert post(recall, body, accept=f"{JSON}, {MSGPACK};q=0").headers["content-type"] == JSON
    assert post(recall, body, accept=f"{JSON};q=0.0, {MSGPACK};q=0.5").headers["content-type"] == MSGPACK


def test_plain_json_as_a_person_types_it(recall, release):
    rows = base64.b64encode(np.ones(release.model.width, "<f4").tobytes()).decode()
    prompt = {"release": release.id, "rows": rows, "num_rows": 1, "unknown": "ignored"}
    answer = post(recall, msgspec.json.encode({"user_id": "u1", "prompt": prompt, "new_field": 1})).json()
    assert answer["rung"] == "generate"
    assert answer["assets"]["prompt_embedding"]["state"] == "FRESH"
    assert set(answer["ledger"]["stages_ms"]) == {"parse", "store", "queue", "decode", "build"}
    assert answer["ledger"]["budget_ms"] == 5000


def test_the_requests_budget_is_the_one_that_counts(recall):
    answer = post(recall, b'{"user_id": "u1", "budget_ms": 0.001}').json()
    assert answer["ledger"]["budget_ms"] == pytest.approx(0.001)
    assert answer["rung"] != "generate"
    assert answer["items"]


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        (b"", 400, "body"),
        (b"{", 400, "body"),
        (b'{"user_id": "\xff"}', 400, "body"),
        (b"[]", 422, ""),
        (b"null", 422, ""),
        (b'{"user_id": "u", "unknown": ' + b"[" * 100_000, 400, ""),
        (b"{}", 422, ""),
        (b'{"user_id": 5}', 422, "user_id"),
        (b'{"user_id": ""}', 422, "user_id"),
        (b'{"user_id": "a\\nb"}', 422, "user_id"),
        ('{"user_id": "' + "é" * 300 + '"}', 422, "user_id"),
        (b'{"user_id": "u", "k": 0}', 422, "k"),
        (b'{"user_id": "u", "k": 1e99}', 422, "k"),
        (b'{"user_id": "u", "budget_ms": -1}', 422, "budget_ms"),
        (b'{"user_id": "u", "value": "much"}', 422, "value"),
        (b'{"user_id": "u", "exclude": [""]}', 422, "exclude"),
        (b'{"user_id": "u", "prompt": {"release": "r", "rows": "%%", "num_rows": 1}}', 422, "prompt"),
        (b'{"user_id": "u", "prompt": {"release": "r", "rows": "", "num_rows": 1, "age_ms": -5}}', 422, "age_ms"),
    ],
)
def test_a_bad_request_is_refused_by_name(recall, body, status, where):
    response = post(recall, body)
    assert response.status_code == status
    error = error_of(response)
    assert where in error["where"]
    assert error["error"]
    assert error["mend"]


def test_not_a_number_in_msgpack(recall):
    for budget in (float("nan"), float("-inf")):
        body = msgspec.msgpack.encode({"user_id": "u1", "budget_ms": budget})
        response = send(recall, "POST", "/v1/recall", content=body, headers={"content-type": MSGPACK})
        assert response.status_code == 422


@pytest.mark.parametrize(
    ("headers", "where"),
    [
        ({"content-type": "application/x-www-form-urlencoded"}, "content-type"),
        ({"content-type": JSON, "content-encoding": "gzip"}, "content-encoding"),
    ],
)
def test_other_media_are_refused(recall, headers, where):
    response = send(recall, "POST", "/v1/recall", content=b'{"user_id": "u1"}', headers=headers)
    assert response.status_code == 415
    assert error_of(response)["where"] == where


def test_a_charset_or_no_type_at_all_is_json(recall):
    for headers in ({"content-type": "application/json; charset=utf-8"}, {}):
        response = send(recall, "POST", "/v1/recall", content=b'{"user_id": "u1"}', headers=headers)
        assert response.status_code == 200


def test_a_body_too_large_is_refused_said_or_not(recall):
    body = b'{"user_id": "' + b"x" * MAX_BODY_BYTES + b'"}'

    async def drip():
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    assert post(recall, body).status_code == 413
    assert send(recall, "POST", "/v1/recall", content=drip()).status_code == 413


def test_a_batch_answers_in_order_each_with_its_own_budget(recall):
    requests = [{"user_id": "u1", "k": 3}, {"user_id": "stranger", "budget_ms": 0.001}, {"user_id": "é🧼", "k": 5}]
    answers = post(recall, msgspec.json.encode(requests), "/v1/recall:batch").json()
    assert [answer["user_id"] for answer in answers] == ["u1", "stranger", "é🧼"]
    assert [answer["rung"] for answer in answers][::2] == [Rung.GENERATE, Rung.GENERATE]
    assert answers[1]["rung"] != "generate"
    assert len(answers[0]["items"]) == 3


def test_a_batch_is_bounded_and_names_the_bad_one(recall):
    many = [{"user_id": "u1"}] * (MAX_BATCH + 1)
    assert post(recall, msgspec.json.encode(many), "/v1/recall:batch").status_code == 422
    for bad in ({"user_id": ""}, {"user_id": "é" * 300}):
        response = post(recall, msgspec.json.encode([{"user_id": "u1"}, bad]), "/v1/recall:batch")
        assert response.status_code == 422
    assert error_of(response)["where"] == "[1].user_id"
    assert post(recall, b"[]", "/v1/recall:batch").json() == []


@pytest.mark.parametrize("user_id", ["u1", "a/b c%d", "é🧼", "stranger"])
def test_explain_takes_any_user_id(recall, user_id, monkeypatch):
    monkeypatch.setattr("online.app.EXPLAIN_BUDGET_S", 30.0)
    response = send(recall, "GET", f"/v1/users/{quote(user_id, safe='')}/explain?k=2")
    explanation = msgspec.json.decode(response.content, type=Explanation)
    assert explanation.user_id == user_id
    assert bool(explanation.window) is (user_id != "stranger")
    assert len(explanation.rungs[0].items) == 2


@pytest.mark.parametrize("path", ["/v1/users/%0a/explain", "/v1/users/%ff/explain", "/v1/users/u1/explain?k=many"])
def test_explain_refuses_what_is_no_user(recall, path):
    assert send(recall, "GET", path).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/users//explain", 404),
        ("GET", "/v1/recall", 405),
        ("POST", "/v1/users/u1/explain", 405),
        ("GET", "/v2/recall", 404),
    ],
)
def test_unknown_paths_and_methods(recall, method, path, status):
    response = send(recall, method, path)
    assert response.status_code == status
    assert error_of(response)["mend"]
    allowed = {"/v1/recall": "POST", "/v1/users/u1/explain": "GET, HEAD"}
    assert response.headers.get("allow") == allowed.get(path)


def test_health_and_readiness(recall, releases, release):
    assert send(recall, "GET", "/healthz").status_code == 200
    assert send(recall, "GET", "/readyz").json() == {"ready": True, "problems": {}}
    assert send(recall, "GET", "/v1/releases").json()["current"] == release.id
    releases.loaded = Loaded()
    assert send(recall, "GET", "/readyz").status_code == 503
    assert send(recall, "GET", "/healthz").status_code == 200
    answer = post(recall, b'{"user_id": "u1"}')
    assert answer.status_code == 200
    assert answer.json()["rung"] == "none"


def test_metrics_count_without_naming_anybody(recall, release):
    post(recall, '{"user_id": "é🧼"}'.encode())
    post(recall, b"{")
    text = send(recall, "GET", "/metrics").text
    for line in (
        f'beforehand_answers_total{{release="{release.id}",rung="generate"}} 1.0',
        'beforehand_assets_total{asset="intent_state",reason="ok",state="FRESH"} 1.0',
        'beforehand_refused_total{status="400"} 1.0',
        'beforehand_stage_seconds_count{stage="decode"} 1.0',
        "beforehand_late_total 0.0",
        "beforehand_wrong_key_total 0.0",
        'beforehand_cache_total{by="redis"} 1.0',
    ):
        assert any(found.startswith(line) for found in text.splitlines()), line
    assert "é🧼" not in text


def test_the_key_guards_what_is_about_users(recall):
    body = b'{"user_id": "u1"}'
    for headers, status in (
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer k3y"}, 200),
    ):
        assert send(recall, "POST", "/v1/recall", api_key="k3y", content=body, headers=headers).status_code == status
    assert send(recall, "GET", "/v1/users/u1/explain", api_key="k3y").status_code == 401
    assert send(recall, "GET", "/healthz", api_key="k3y").status_code == 200


def test_openapi_names_every_path_and_type(recall):
    document = send(recall, "GET", "/openapi.json").json()
    assert {"/v1/recall", "/v1/recall:batch", "/v1/users/{id}/explain", "/v1/releases"} <= set(document["paths"])
    components = document["components"]["schemas"]
    assert {"RecallRequest", "RecallResponse", "Explanation", "ErrorBody"} <= set(components)
    assert components["RecallRequest"]["properties"]["k"]["maximum"] == 500


def test_a_fault_of_ours_is_a_500_without_details(recall, monkeypatch, caplog):
    async def broken(request, _deadline, *, bulk):
        raise KeyError(request.user_id)

    monkeypatch.setattr(recall, "answer", broken)
    response = post(recall, b'{"user_id": "u1"}')
    assert response.status_code == 500
    assert "u1" not in response.text
    assert "KeyError" in caplog.text
    assert "u1" not in caplog.text


def test_a_client_that_leaves_gets_nothing(recall):
    sent = []

    async def run():
        messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

        async def receive():
            return next(messages)

        async def keep(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/recall", "raw_path": b"/v1/recall", "headers": []}
        await App(recall, 5.0)(scope, receive, keep)

    asyncio.run(run())
    assert sent == []
