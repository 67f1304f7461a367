"""The job's parser and the contract's decoder agree: both read the same list of records (see EventParserTest.java)."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import DataError
from schemas.event import MAX_AT_MS, MAX_ID_CHARACTERS, MAX_RECORD_BYTES, MIN_AT_MS, decode_event
from schemas.names import Kind

JAVA = Path(__file__).resolve().parents[2] / "streaming" / "java" / "src"
RECORDS: list[dict[str, Any]] = json.loads((JAVA / "test" / "resources" / "records.json").read_text("utf-8"))


def raw(record: dict[str, Any]) -> bytes:
    if "base64" in record:
        return base64.b64decode(record["base64"])
    text: str = record["text"]
    return (text.replace("§", record["fill"] * record["times"]) if "fill" in record else text).encode()


@pytest.mark.parametrize("record", RECORDS, ids=[record["name"] for record in RECORDS])
def test_the_contract_agrees_with_the_list(record: dict[str, Any]) -> None:
    if record["reason"] is None:
        decode_event(raw(record))
        return
    with pytest.raises(DataError) as caught:
        decode_event(raw(record))
    if record["reason"] in ("at_in_seconds", "at_in_microseconds"):
        assert record["reason"].removeprefix("at_in_") in caught.value.mend


def test_the_list_holds_every_reason_that_the_record_alone_can_have() -> None:
    source = (JAVA / "main" / "java" / "beforehand" / "Reason.java").read_text("utf-8")
    reasons = {name.lower() for name in re.findall(r"^  ([A-Z0-9_]+)[,;]$", source, re.MULTILINE)}
    assert {record["reason"] for record in RECORDS} - {None} == reasons - {"null_value", "future"}


def test_the_parser_has_the_contracts_limits() -> None:
    source = (JAVA / "main" / "java" / "beforehand" / "EventParser.java").read_text("utf-8")
    for name, value in (("MIN_AT_MS", f"{MIN_AT_MS:_}L"), ("MAX_AT_MS", f"{MAX_AT_MS:_}L")):
        assert f"{name} = {value};" in source
    assert f"MAX_ID_CHARACTERS = {MAX_ID_CHARACTERS};" in source
    assert MAX_RECORD_BYTES == 64 * 1024
    assert "MAX_RECORD_BYTES = 64 * 1024;" in source
    kinds = source.partition("KINDS = Set.of(")[2].partition(")")[0]
    assert {kind.strip(' "') for kind in kinds.split(",")} == set(Kind)
