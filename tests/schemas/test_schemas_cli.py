"""What verbs print: whatever a shop or a user wrote, as it is."""

from __future__ import annotations

import argparse
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from schemas.cli import console, main, parser, say, step, verb
from schemas.errors import DataError


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 500)


@pytest.mark.parametrize("text", ["[/x]", "[bold]a[/bold]", "[red]", "a [link=x]b", ":smile:", "[", "a\\\\b"])
def test_a_line_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(text)
    assert capsys.readouterr().err == f"{text}\n"


@given(st.text(alphabet="[]/\\ax:=#\udcff", max_size=12))
def test_no_text_ends_a_verb(text: str) -> None:
    with console.capture():
        say(text)
        say(f"✓ {text}")


def test_the_mark_and_a_text_keep_their_styles(capsys: pytest.CaptureFixture[str]) -> None:
    say("✓ done [/x]")
    say(Text.assemble(("a", "bold"), "[/x]"))
    with step("a [/x]") as made:
        made("[/y]")
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["✓ done [/x]", "a[/x]"]
    assert said[2].startswith("✓ a [/x]: [/y] (")


@pytest.mark.parametrize("value", ["[/x]", "\\[/x]", "[red]"])
def test_an_error_is_told_whatever_it_names(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_args: argparse.Namespace) -> None:
        raise DataError(f"no such item {value}", where="ITEM")

    top, verbs = parser("test", "A room.")
    verb(verbs, "fail", fail, "It fails.", "fail")
    with pytest.raises(SystemExit) as ended:
        main(top, ["fail", "--json"])
    assert ended.value.code == 3
    assert capsys.readouterr().err == f"error ITEM: no such item {value}\n"


def test_a_name_that_is_not_utf_8_comes_out_as_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def run(_args: argparse.Namespace) -> None:
        raise DataError("no such file", where="bad\udcff.jsonl", mend="Name another.")

    top, verbs = parser("a", "b")
    verb(verbs, "try", run, "tries", "try")
    with pytest.raises(SystemExit):
        main(top, ["try", "--json"])
    told = json.loads(capfdbinary.readouterr().out)
    assert told == {"error": "no such file", "where": "bad\udcff.jsonl", "mend": "Name another."}
