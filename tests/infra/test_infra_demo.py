"""What the demo asks of its data room, and what it refuses before anything starts."""

import pytest

from infra import demo
from infra.errors import LauncherError
from infra.paths import Layout
from infra.stack import Stack


def asked(monkeypatch, tmp_path, *words: str) -> list[str]:
    """The words that the data step would run."""
    ran: list[list[str]] = []
    monkeypatch.setattr(demo, "run_verb", lambda *given, **_: ran.append([str(word) for word in given]) or {})
    layout = Layout(root=tmp_path, state=tmp_path)
    demo._data(demo.Demo(demo._parse(list(words)), layout, Stack(tmp_path)))
    return ran[0]


def test_the_data_set_is_named_by_what_it_is(monkeypatch, tmp_path):
    assert asked(monkeypatch, tmp_path) == ["data", "--name", "journey"]
    assert asked(monkeypatch, tmp_path, "--small") == ["data", "--name", "journey-small", "--small"]
    retail = asked(monkeypatch, tmp_path, "--small", "--data", "online-retail", "i.parquet")
    assert retail[2:] == ["online-retail-small", "--small", "--source", "online-retail", "--file", "i.parquet"]
    own = asked(monkeypatch, tmp_path, "--catalogue", "c.csv", "--events", "e.csv")
    assert own[2:] == ["files", "--catalogue", "c.csv", "--events", "e.csv"]


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "online-retail"],
        ["--data", "journey", "x.parquet"],
        ["--data", "nothing"],
        ["--data", "online-retail", "a", "b"],
        ["--catalogue", "c.csv"],
        ["--events", "e.csv"],
    ],
)
def test_half_a_data_set_is_refused_with_the_mend(words):
    with pytest.raises(LauncherError) as caught:
        demo._parse(words)
    assert "--" in str(caught.value)
