"""One file per contract version, written once and decoded forever: old bytes must keep their meaning."""

import hashlib
import struct
from pathlib import Path

import msgspec
import pytest

from schemas.api import PromptEmbedding, RecallRequest, RecallResponse
from schemas.errors import DataError
from schemas.event import Event, Forget, decode_event, decode_forget, encode_event, encode_forget
from schemas.graphs import decoder_arrays
from schemas.item_change import Change, ItemChange, decode_change, encode_change
from schemas.json_schema import CONTRACTS, check_contracts, write_contracts
from schemas.names import Kind, Reason, Rung, State
from schemas.release import Manifest, content_id
from schemas.state import (
    CANDIDATES_MAGIC,
    HEADER,
    STATE_MAGIC,
    Candidates,
    IntentState,
    decode_candidates,
    decode_state,
    encode_candidates,
    encode_state,
)
from schemas.window import Window, WindowEvent, decode_window

GOLDEN = Path(__file__).parent / "golden"

EVENT = Event(
    event_id="b1-9", user_id="u 1 é", item_id="9", kind=Kind.CART, at=1_500_000_000_123, context={"screen": "home"}
)
STATE = IntentState(
    user_id="u 1 é",
    release="0123456789abcdef",
    made_at=1_700_000_000_000,
    watermark=1_500_000_000_123,
    arrived_at=1_699_999_999_500,
    bucket=2,
    rows=struct.pack("<4e", 0.5, -1.0, 2.0, 0.25),
    num_rows=1,
    items=[9, 3],
    kinds=[3, 4],
    times=[1_500_000_000_123, 1_400_000_000_000],
    neighbour_items=[3, 7],
    neighbour_scores=[0.75, 0.5],
)
CANDIDATES = Candidates(
    "u 1 é", "0123456789abcdef", 1_700_000_000_000, 1_500_000_000_123, [7, 3, 1], [-0.5, -0.75, -2.0]
)
WINDOW = Window([WindowEvent("b1-9", "9", "cart", 1_500_000_000_123)], 1_699_999_999_500)


def test_event_of_version_1():
    assert decode_event((GOLDEN / "event.v1.json").read_bytes()) == EVENT


def test_forget_of_version_1():
    forget = Forget(user_id="u 1 é", at=1_500_000_000_123)
    raw = (GOLDEN / "forget.v1.json").read_bytes()
    assert (decode_forget(raw), encode_forget(forget)) == (forget, raw)
    with pytest.raises(DataError):
        decode_forget(b'{"user_id":"u"}')


def test_item_change_of_version_1():
    change = ItemChange(
        item_id="i 1 é",
        change=Change.CHANGED,
        at=1_500_000_000_123,
        title="Tea",
        text="green tea",
        category="drinks",
        brand="b",
    )
    raw = (GOLDEN / "item_change.v1.json").read_bytes()
    assert (decode_change(raw), encode_change(change)) == (change, raw)


def test_window_of_version_1():
    assert decode_window((GOLDEN / "window.v1.json").read_bytes()) == WINDOW


def test_intent_state_of_version_1():
    raw = (GOLDEN / "intent_state.v1.bin").read_bytes()
    assert decode_state(raw) == STATE
    assert HEADER.unpack_from(raw) == (STATE_MAGIC, STATE.watermark, 41)


def test_candidates_of_version_1():
    raw = (GOLDEN / "candidates.v1.bin").read_bytes()
    assert decode_candidates(raw) == CANDIDATES
    assert HEADER.unpack_from(raw) == (CANDIDATES_MAGIC, CANDIDATES.watermark, 42)


def test_what_is_written_today_is_read_back_the_same():
    assert decode_event(encode_event(EVENT)) == EVENT
    assert decode_state(encode_state(STATE, 41)) == STATE
    assert decode_candidates(encode_candidates(CANDIDATES, 42)) == CANDIDATES


def test_request_and_response_of_version_1():
    request = msgspec.json.decode((GOLDEN / "recall_request.v1.json").read_bytes(), type=RecallRequest)
    assert (request.user_id, request.k, request.budget_ms, request.exclude) == ("u1", 20, 40.0, ["9"])
    assert request.prompt == PromptEmbedding("0123456789abcdef", b"\x00\x00\x80?", 1, 120)
    response = msgspec.json.decode((GOLDEN / "recall_response.v1.json").read_bytes(), type=RecallResponse)
    assert response.rung is Rung.GENERATE
    assert response.assets["intent_state"].state is State.STALE
    assert response.assets["prompt_embedding"].reason is Reason.NOT_SENT
    assert response.items[0].sid == [1, 2, 3]


def test_manifest_of_version_1_keeps_its_id():
    manifest = msgspec.json.decode((GOLDEN / "manifest.v1.json").read_bytes(), type=Manifest)
    assert manifest.content.model.width == 16
    assert content_id(manifest.content) == manifest.id


def test_manifest_of_format_2_has_the_category_sets():
    old = msgspec.json.decode((GOLDEN / "manifest.v1.json").read_bytes(), type=Manifest).content
    manifest = msgspec.json.decode((GOLDEN / "manifest.v2.json").read_bytes(), type=Manifest)
    assert (manifest.format, content_id(manifest.content)) == (2, manifest.id)
    taken = decoder_arrays(old.model.levels, manifest.content.files)
    assert {"category_sets", "set_0", "set_1"} == set(taken) - set(decoder_arrays(old.model.levels, old.files))
    assert taken == decoder_arrays(old.model.levels)


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        (b'{"event_id":"e","user_id":"u","item_id":"i","kind":"cart","at":1500000000}', "seconds"),
        (b'{"event_id":"e","user_id":"u","item_id":"i","kind":"cart","at":1500000000000000}', "microseconds"),
        (b'{"event_id":"e","user_id":"u","item_id":"i","kind":"stare","at":1500000000000}', "$.kind"),
        (b'{"event_id":"","user_id":"u","item_id":"i","kind":"cart","at":1500000000000}', "$.event_id"),
        (b'{"event_id":"e","user_id":"a\\nb","item_id":"i","kind":"cart","at":1500000000000}', "$.user_id"),
        (b'{"event_id":"e","user_id":"u","item_id":"i","kind":"cart","at":"yesterday"}', "$.at"),
        (b'{"event_id":"e","user_id":"u","item_id":"i","kind":"cart","at":1e400}', "at"),
        (b'{"event_id":"e","user', "truncated"),
        (b"[]", "array"),
        (b"null", "null"),
        (b"", "truncated"),
        (b"\xff\xfe{}", "not a valid event"),
        (b" " * 70_000, "too large"),
        (b'{"event_id":' + b"[" * 60_000, "array"),
        (b'{"new":' + b"[" * 60_000, "recursion"),
    ],
)
def test_a_bad_event_is_refused_by_name(raw: bytes, names: str):
    with pytest.raises(DataError) as caught:
        decode_event(raw, where="events.jsonl:7")
    assert names in str(caught.value)
    assert str(caught.value).startswith("events.jsonl:7")
    assert len(str(caught.value)) < 700


def test_unknown_fields_are_ignored():
    raw = b'{"event_id":"e","user_id":"u","item_id":"i","kind":"cart","at":1500000000000,"new":[1]}'
    assert decode_event(raw).item_id == "i"


@pytest.mark.parametrize("raw", [b"", b"BH1S", b"BH1C" + b"\0" * 40, encode_state(STATE, 1)[:-3], b"\x80" * 64])
def test_a_damaged_state_is_refused(raw: bytes):
    with pytest.raises(DataError):
        decode_state(raw)


def test_the_json_schemas_agree_with_the_code(tmp_path: Path):
    folder = Path(__file__).parents[2] / "schemas" / "json"
    assert check_contracts(folder) == []
    write_contracts(tmp_path)
    (tmp_path / "event.v1.json").write_text("{}")
    (tmp_path / "gone.v1.json").write_text("{}")
    assert check_contracts(tmp_path) == ["event.v1", "gone.v1"]


def test_every_contract_has_a_golden_file_or_is_part_of_one():
    without = {"dead_letter.v1", "explanation.v1", "catalogue.v1", "profiles.v1"}
    golden = {path.name.rsplit(".", 1)[0] for path in GOLDEN.iterdir()}
    assert set(CONTRACTS) - without <= golden
    assert {name.split(".")[0] for name in golden} <= {name.split(".")[0] for name in CONTRACTS}


def test_golden_files_have_not_been_touched():
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(GOLDEN.iterdir()))).hexdigest()
    assert digest == (Path(__file__).parent / "golden.sha256").read_text().strip()
