"""Every test has its own folder of state."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path / "state"))
    for name in ("REGISTRY", "SIGNING_KEY", "VERIFY_KEY", "PLAN", "BEAM_OPTIONS"):
        monkeypatch.delenv(f"BEFOREHAND_{name}", raising=False)
    return tmp_path / "state"
