"""What a verb finds in its environment: derived addresses, and the user's choice above them."""

import json

import pytest

from infra import settings
from infra.paths import ROOT, Layout


@pytest.fixture
def layout(tmp_path, monkeypatch):
    for name in ("BEFOREHAND_REDIS", "BEFOREHAND_STATE", settings.DERIVED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings, "addresses", lambda layout: {"BEFOREHAND_REDIS": f"redis://{layout.state.name}"})
    return Layout(root=ROOT, state=tmp_path / "one")


def test_the_stacks_addresses_are_set(layout):
    environ = settings.verb_environment(layout, "nearline")
    assert environ["BEFOREHAND_REDIS"] == "redis://one"
    assert environ["BEFOREHAND_STATE"] == str(layout.state)
    assert environ["BEFOREHAND_ROOT"] == str(ROOT)
    assert environ["PATH"].startswith(str(layout.env_python("nearline").parent))


def test_the_users_own_address_wins(layout, monkeypatch):
    monkeypatch.setenv("BEFOREHAND_REDIS", "redis://mine")
    environ = settings.verb_environment(layout, "nearline")
    assert environ["BEFOREHAND_REDIS"] == "redis://mine"
    assert "BEFOREHAND_REDIS" not in json.loads(environ[settings.DERIVED])


def test_an_outer_launchers_address_is_not_the_users(layout, monkeypatch, tmp_path):
    """A test that starts a launcher with its own state folder must not reach the outer stack."""
    outer = settings.verb_environment(layout, "nearline")
    monkeypatch.setattr(settings.os, "environ", outer)
    inner = settings.verb_environment(Layout(root=ROOT, state=tmp_path / "two"), "nearline")
    assert inner["BEFOREHAND_REDIS"] == "redis://two"
    changed = {**outer, "BEFOREHAND_REDIS": "redis://mine"}
    monkeypatch.setattr(settings.os, "environ", changed)
    assert settings.verb_environment(layout, "nearline")["BEFOREHAND_REDIS"] == "redis://mine"


def test_the_state_folder_can_be_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path / "elsewhere"))
    assert Layout.current().state == tmp_path / "elsewhere"
    monkeypatch.delenv("BEFOREHAND_STATE")
    assert Layout.current().state == ROOT / ".beforehand" / "state"


def test_streaming_finds_a_jdk(layout, monkeypatch):
    from infra.system import find_java

    if find_java() is None:
        pytest.skip("no JDK here")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert settings.verb_environment(layout, "streaming")["JAVA_HOME"]
