"""Against the real offline room: its parser takes every command, and the DAG ends in a promoted release."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dags.command import arguments
from dags.pipelines import derive_pipelines
from schemas.plan import load_plan
from schemas.registry import Registry

CHECKOUT = Path(__file__).resolve().parents[2]
OFFLINE = CHECKOUT / ".beforehand" / "envs" / "offline" / "bin" / "python"
TINY = ["model.epochs=1", "model.width=16", "model.layers=1", "model.heads=2", "model.window=8", "index.codes=8"]
PARSE = """
import json, sys
import schemas.cli
from offline.__main__ import main
commands = json.loads(sys.argv[1])
schemas.cli.main = lambda top, words: top.parse_args(words)
for words in commands:
    main(words)
print("parsed", len(commands))
"""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("offline_room")]


@pytest.fixture(scope="module")
def offline_room() -> None:
    """Skips where there is no offline environment to ask."""
    if not OFFLINE.exists():
        pytest.skip("no offline environment: ./beforehand env offline")


def test_the_offline_room_takes_every_command(params: dict[str, Any]) -> None:
    backfill = {one.id: one for one in derive_pipelines(load_plan(CHECKOUT / "plan.toml"))}["backfill"]
    stages = [step.id for step in backfill.steps]
    files = {"source": "files", "catalogue": "/c.csv", "events": "/e.csv", "profiles": "/p.csv"}
    variants = [
        params,
        params | {"small": True, "set": ["model.epochs=1", "model.seed=2"], "force": True},
        params | {"source": "online-retail", "file": "/f.parquet"},
        params | files,
    ]
    commands = [arguments(stage, variant) for variant in variants for stage in stages]
    done = subprocess.run(
        [str(OFFLINE), "-c", PARSE, json.dumps(commands)], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == f"parsed {len(commands)}", done.stderr


def test_the_dag_promotes_a_release_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    shop = write_shop(tmp_path)
    first = trial(state, *shop)
    assert first["state"] == "success"
    assert first["dags"]["promote"]["tasks"]["rollout"] == "success"
    registry = Registry(f"sqlite:///{state}/registry.db")
    release = registry.current()
    assert release is not None
    assert stamps_of(state / "work")
    made = files_of(state / "releases")
    work = stamps_of(state / "work")
    acts = registry.history()

    assert trial(state, *shop)["state"] == "success"
    again = registry.current()
    assert again is not None
    assert again.id == release.id
    assert files_of(state / "releases") == made
    assert stamps_of(state / "work") == work
    assert registry.history() == acts


def trial(state: Path, *words: str) -> dict[str, Any]:
    """``./beforehand dags test``, as a person types it."""
    inherited = ("BEFOREHAND_DERIVED", "BEFOREHAND_ROOT", "BEFOREHAND_PLAN", "BEFOREHAND_REGISTRY")
    environ = {name: value for name, value in os.environ.items() if name not in inherited}
    done = subprocess.run(
        [str(CHECKOUT / "beforehand"), "dags", "test", "--json", *words],
        env=environ | {"BEFOREHAND_STATE": str(state)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of each file: work done again shows here."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def stamps_of(folder: Path) -> dict[str, tuple[int, int]]:
    """The same for the ``stage.json`` that each stage writes when it has done its work."""
    return {name: about for name, about in files_of(folder).items() if name.endswith("stage.json")}


def write_shop(folder: Path) -> list[str]:
    """60 items and 40 users whose habits repeat, as files for ``--catalogue`` and ``--events``."""
    draw = random.Random(1)
    kinds = ["tea", "bread", "soap", "wool", "lamp", "seed"]
    items = [[f"i{n}", f"{kinds[n % 6]} number {n}", kinds[n % 6], f"brand {n % 4}"] for n in range(60)]
    write_csv(folder / "catalogue.csv", ["item_id", "title", "category", "brand"], items)
    events = [
        [f"u{user}", f"i{(user % 6) + 6 * draw.randrange(10)}", "purchase", 1_750_000_000_000 + 86_400_000 * day]
        for user in range(40)
        for day in sorted(draw.sample(range(120), 30))
    ]
    write_csv(folder / "events.csv", ["user_id", "item_id", "kind", "at"], events)
    overrides = [word for value in TINY for word in ("--set", value)]
    files = ["--catalogue", str(folder / "catalogue.csv"), "--events", str(folder / "events.csv")]
    return ["--data", "tiny", "--source", "files", *files, *overrides]


def write_csv(path: Path, header: list[str], rows: list[list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
