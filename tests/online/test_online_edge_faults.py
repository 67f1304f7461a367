"""What devices get wrong: a prompt that can't be used is ignored with a reason, counted and answered; and titles."""

from __future__ import annotations

import base64
import dataclasses
import struct
from urllib.parse import quote

import msgspec
import numpy as np
import pytest
from online_values import NOW_MS, make_state
from test_online_app import send
from test_online_service import Shelf

from online.http import MAX_BODY_BYTES
from online.items import MAX_IDS
from online.releases import Loaded
from online.service import Recall

MEGABYTE = 1024**2


@pytest.fixture
def recall(plan, releases, release):
    recall = Recall(plan, Shelf(make_state(release)), releases, now_ms=lambda: NOW_MS)
    yield recall
    recall.decoder.close()


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def whole(release, value: float = 1.0) -> bytes:
    return np.full(release.model.prompt_rows * release.model.width, value, "<f4").tobytes()


def ask(recall, prompt: dict | None, **more) -> dict:
    body = {"user_id": "u1", "k": 20, **more} | ({"prompt": prompt} if prompt else {})
    response = send(recall, "POST", "/v1/recall", json=body)
    assert response.status_code == 200, response.text[:300]
    return response.json()


def faulty(release, fault: str) -> tuple[dict, str, str]:
    """A prompt with the fault, and the state and reason that the answer should name."""
    rows = whole(release)
    fields = {"release": release.id, "rows": rows, "num_rows": release.model.prompt_rows, "age_ms": 10}
    one_off = np.frombuffer(rows, "<f4").copy()
    one_off[-1] = np.inf
    changes, state, reason = {
        "other release": ({"release": "0" * 16}, "MISMATCHED", "other_release"),
        "a release with a long name": ({"release": "é" * 256}, "MISMATCHED", "other_release"),
        "one float short": ({"rows": rows[:-4]}, "EMPTY", "bad_shape"),
        "one byte long": ({"rows": rows + b"\0"}, "EMPTY", "bad_shape"),
        "fp16": ({"rows": np.ones(release.model.width, "<f2").tobytes()}, "EMPTY", "bad_shape"),
        "no rows": ({"rows": b""}, "EMPTY", "bad_shape"),
        "too many rows": ({"rows": rows * 50, "num_rows": 50}, "EMPTY", "bad_shape"),
        "negative count": ({"num_rows": -1}, "EMPTY", "bad_shape"),
        "a count that overflows": ({"num_rows": 2**62}, "EMPTY", "bad_shape"),
        "a megabyte": ({"rows": b"\x3f" * MEGABYTE}, "EMPTY", "bad_shape"),
        "a megabyte that says so": ({"rows": b"\0" * MEGABYTE, "num_rows": MEGABYTE // 64}, "EMPTY", "bad_shape"),
        "all NaN": ({"rows": whole(release, np.nan)}, "EMPTY", "not_finite"),
        "one infinity": ({"rows": one_off.tobytes()}, "EMPTY", "not_finite"),
        "too old": ({"age_ms": 61_000}, "EXPIRED", "too_old"),
        "older than the world": ({"age_ms": 2**53}, "EXPIRED", "too_old"),
    }[fault]
    fields |= changes
    return fields | {"rows": base64.b64encode(fields["rows"]).decode()}, state, reason


FAULTS = [
    "other release", "a release with a long name", "one float short", "one byte long", "fp16", "no rows",
    "too many rows", "negative count", "a count that overflows", "a megabyte", "a megabyte that says so", "all NaN",
    "one infinity", "too old", "older than the world",
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_prompt_that_can_not_be_used_costs_only_itself(recall, release, fault):
    prompt, state, reason = faulty(release, fault)
    without, given = ask(recall, None), ask(recall, prompt)
    assert given["assets"]["prompt_embedding"]["state"] == state
    assert given["assets"]["prompt_embedding"]["reason"] == reason
    assert given["rung"] == "generate"
    assert given["items"] == without["items"], "answered as if no prompt had been sent"
    assert "prompt_embedding" not in given["ledger"]["saved_ms"]
    counted = f'beforehand_assets_total{{asset="prompt_embedding",reason="{reason}",state="{state}"}} 1.0'
    assert counted in send(recall, "GET", "/metrics").text


def test_a_good_prompt_is_told_from_those(recall, release):
    rows = np.random.default_rng(5).standard_normal(release.model.prompt_rows * release.model.width).astype("<f4") * 3
    prompt = {"release": release.id, "rows": base64.b64encode(rows.tobytes()).decode(), "num_rows": 1, "age_ms": 10}
    given = ask(recall, prompt)
    assert given["assets"]["prompt_embedding"]["state"] == "FRESH"
    assert given["items"] != ask(recall, None)["items"]
    assert given["ledger"]["saved_ms"]["prompt_embedding"] > 0


@pytest.mark.parametrize("value", [3e38, -3e38, 1e-45])
def test_numbers_at_the_edge_of_float32_are_answered_with_finite_scores(recall, release, value):
    prompt = {"release": release.id, "rows": base64.b64encode(whole(release, value)).decode(), "num_rows": 1}
    given = ask(recall, prompt)
    assert given["items"]
    assert all(np.isfinite(item["score"]) for item in given["items"])


def test_one_bad_prompt_in_a_batch_leaves_the_others_alone(recall, release):
    bad, _, reason = faulty(release, "a megabyte")
    good = {"release": release.id, "rows": base64.b64encode(whole(release)).decode(), "num_rows": 1}
    body = [{"user_id": "u1", "prompt": prompt} for prompt in (good, bad, good)]
    answers = send(recall, "POST", "/v1/recall:batch", json=body).json()
    assert [a["assets"]["prompt_embedding"]["reason"] for a in answers] == ["ok", reason, "ok"]


def test_beyond_the_bound_of_a_body_it_is_refused(recall, release):
    prompt = {"release": release.id, "rows": "A" * MAX_BODY_BYTES, "num_rows": 1}
    response = send(recall, "POST", "/v1/recall", json={"user_id": "u1", "prompt": prompt})
    assert response.status_code == 413
    assert response.json()["mend"]


def titles(recall, query: str):
    return send(recall, "GET", f"/v1/items?{query}")


def test_titles_of_the_items_asked_for(recall, release):
    ids = release.catalogue.item_ids
    response = titles(recall, "&".join(f"ids={quote(item, safe='')}" for item in [*ids[:3], "no such", ids[0]]))
    assert response.status_code == 200
    body = response.json()
    assert body["release"] == release.id
    assert set(body["items"]) == set(ids[:3])
    for number in range(3):
        card = body["items"][ids[number]]
        assert card["title"] == release.catalogue.titles[number]
        category = release.catalogue.categories[release.arrays["item_category"][number]]
        assert card["category"] == category


def test_titles_of_a_canarys_own_items_and_what_each_release_is(recall, releases, release, other):
    ids = list(release.catalogue.item_ids)
    catalogue = msgspec.structs.replace(other.catalogue, item_ids=["new", *ids[1:]], titles=["theirs"] * len(ids))
    numbers = {item_id: number for number, item_id in enumerate(catalogue.item_ids)}
    canary = dataclasses.replace(other, catalogue=catalogue, item_numbers=numbers)
    releases.loaded = Loaded(release, None, canary, 0.1)
    body = titles(recall, f"ids=new&ids={quote(ids[1], safe='')}&ids={quote(ids[0], safe='')}").json()
    assert body["release"] == release.id
    found = {item_id: card["title"] for item_id, card in body["items"].items()}
    assert found == {"new": "theirs", ids[1]: release.catalogue.titles[1], ids[0]: release.catalogue.titles[0]}
    text = send(recall, "GET", "/metrics").text
    assert f'beforehand_release_role{{release="{release.id}",role="current"}} 1.0' in text
    assert f'beforehand_release_role{{release="{other.id}",role="canary"}} 1.0' in text
    releases.loaded = Loaded(release)
    assert other.id not in send(recall, "GET", "/metrics").text


def test_an_item_that_is_taken_out_of_the_answers_is_told_as_withdrawn(recall, releases, release):
    first, second = release.catalogue.item_ids[:2]
    releases.loaded = Loaded(release, gone={release.id: np.arange(release.model.num_items) == 1})
    body = titles(recall, f"ids={quote(first, safe='')}&ids={quote(second, safe='')}").json()
    assert {item_id: card["withdrawn"] for item_id, card in body["items"].items()} == {first: False, second: True}


def test_titles_are_bounded_and_faults_named(recall, releases):
    assert titles(recall, "&".join(["ids=x"] * MAX_IDS)).status_code == 200
    for query, status in (
        ("", 422),
        ("id=1", 422),
        ("ids=", 422),
        ("ids=%ff", 422),
        ("&".join(["ids=x"] * (MAX_IDS + 1)), 422),
        ("ids=" + "x" * 40_000, 414),
    ):
        response = titles(recall, query)
        assert response.status_code == status, query[:50]
        assert response.json()["where"] == "ids"
    releases.loaded = Loaded()
    assert titles(recall, "ids=x").json() == {"release": "", "items": {}}


def test_the_contract_names_them(recall):
    document = send(recall, "GET", "/openapi.json").json()
    assert {"/v1/items", "/v1/edge/current.json", "/v1/edge/{bundle}/{file}"} <= set(document["paths"])
    assert document["paths"]["/v1/items"]["get"]["parameters"][0]["schema"]["maxItems"] == MAX_IDS
    assert {"Items", "ItemCard"} <= set(document["components"]["schemas"])
