"""The verbs of the plan as they are typed, against a state folder of their own."""

import json
import os
import subprocess
import sys

import pytest

from infra.paths import ROOT
from schemas.plan import load_plan
from schemas.registry import Database
from schemas.registry.builds import Builds
from schemas.registry.leases import take
from schemas.registry.plans import Plans

PLAN = str(ROOT / "plan.toml")


@pytest.fixture
def run(tmp_path):
    """Runs ``plan WORDS --json``; returns the exit code, the JSON object and what was said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")}
    environ = kept | {"BEFOREHAND_STATE": str(tmp_path), "BEFOREHAND_PLAN": PLAN, "PYTHONPATH": str(ROOT)}

    def call(*words: str):
        command = [sys.executable, "-m", "infra.plan", "plan", *words, "--json"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, cwd=ROOT)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    return call


@pytest.fixture
def database(tmp_path):
    return Database(f"sqlite:///{tmp_path / 'registry.db'}")


def test_check_tells_the_digest_or_the_fault(run):
    code, said, _ = run("check")
    assert (code, said["digest"]) == (0, load_plan(ROOT / "plan.toml").digest())
    code, said, told = run("check", "--set", "assets.cohort_lists.schedule='0 4 * * *'")
    assert (code, "one schedule" in said["error"], "one schedule" in told) == (2, True, True)


def test_show_gives_ages_from_the_registry_and_unknown_where_nobody_can_be_asked(run, database):
    Builds(database).confirm("semantic_index", "shop", "h", made=True)
    code, said, _ = run("show")
    assert code == 0
    ages = said["ages"]
    assert {name: age["state"] for name, age in ages.items()} == {
        "semantic_index": "FRESH",
        "generator": "MISSING",
        "cohort_lists": "MISSING",
        "intent_state": "unknown",
        "candidates": "unknown",
        "prompt_embedding": "unknown",
    }
    assert 0 <= ages["semantic_index"]["age_s"] < 3600
    assert said["pointer"]["current"] is None


def test_diff_of_a_file_and_of_the_plan_in_force(run, database):
    code, said, _ = run("diff", PLAN, "--set", "model.epochs=9")
    assert (code, said["category"], len(said["changes"])) == (0, "rebuild", 1)
    code, said, _ = run("diff", "applied")
    assert (code, "no plan is in force" in said["error"]) == (2, True)
    plan = load_plan(ROOT / "plan.toml", ["nearline.refresh=9s"])
    import msgspec

    lease = take(database, "plan:shop", about="")
    whole = msgspec.json.encode(plan, enc_hook=float).decode()
    Plans(database).apply("id", plan.digest(), whole, "shop", why="", lease=lease)
    code, said, _ = run("diff", "applied")
    (change,) = said["changes"]
    assert (change["field"], change["before"], change["category"]) == ("nearline.refresh", 9.0, "read policy")


def test_advise_without_a_service_names_the_mend(run):
    code, said, _ = run("advise")
    assert code == 5
    assert "BEFOREHAND_ONLINE" in said["where"]


def test_a_price_that_is_no_number_is_refused(run):
    for price in ("cheap", "nan", "-1"):
        code, _, said = run("explain", f"--core-hour={price}")
        assert code == 2
        assert "--core-hour" in said
