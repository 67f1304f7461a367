"""All four tiers' own code on the same users gives the same numbers (law 8), and a tier that is off is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.locations import ROOT
from schemas.release import CATALOGUE, Catalogue

FIXTURES = ROOT / "tests" / "fixtures"
RELEASE = json.loads((FIXTURES / "release" / "manifest.json").read_text())["id"]

pytestmark = pytest.mark.slow


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The fixture release, and users with events of its items (and one that it does not know)."""
    shutil.copytree(FIXTURES / "release", tmp_path / "releases" / RELEASE)
    items = msgspec.msgpack.decode((FIXTURES / "release" / CATALOGUE).read_bytes(), type=Catalogue).item_ids
    kinds = ["click", "cart", "purchase"]
    lines = [
        {
            "event_id": f"e{user}-{place}",
            "user_id": f"user {user}",
            "item_id": "unknown" if place == 1 else items[(7 * user + 3 * place) % len(items)],
            "kind": kinds[place % 3],
            "at": 1_750_000_000_000 + 3_600_000 * place + user,
        }
        for user in range(6)
        for place in range(2 + 3 * user)
    ]
    folder = tmp_path / "data" / "shop"
    folder.mkdir(parents=True)
    (folder / "replay.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return tmp_path


def parity(state: Path) -> tuple[int, dict[str, Any]]:
    own = {"BEFOREHAND_STATE": str(state), "BEFOREHAND_VERIFY_KEY": str(FIXTURES / "release.pub")}
    done = subprocess.run(
        [ROOT / "beforehand", "parity", "--users", "6", "--data", "shop", "--release", RELEASE, "--json"],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_all_tiers_give_the_same_numbers(state: Path) -> None:
    code, told = parity(state)
    assert code == 0, told
    assert told["users"] == 6
    compared = {(row["tier"], row["what"]) for row in told["compared"]}
    assert {("nearline", "intent"), ("edge", "prompt"), ("offline", "prompted_items")} <= compared
    assert all(row["within"] and row["cases"] == 6 for row in told["compared"])
