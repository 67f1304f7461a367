"""A build killed at any point, and two at once: the same end, and no stage is done twice."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers_explain import made_stages

from offline.build import stages
from offline.build.stage import Build, read_record
from offline.build.stages import run_build
from schemas.plan import load_plan
from schemas.registry import Registry
from schemas.registry.builds import Builds

NAMES = ("index", "train", "export")
KILLED = """
import os, signal, sys
from dataclasses import replace
sys.path.insert(0, sys.argv[1])
from helpers_explain import made_stages
from offline.build import stage, stages
from offline.build.stage import Build
from schemas.plan import load_plan
name, moment = sys.argv[2:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if moment == "before the record":
    written = stage.write_atomically
    stage.write_atomically = lambda path, raw: die() if path.parent.name == name else written(path, raw)

def maybe(one):
    def run(build, folder):
        if one.name == name and moment == "in the stage":
            die()
        result = one.run(build, folder)
        with open(os.environ["RUNS"], "a") as file:
            file.write(one.name + "\\n")
        return result
    return replace(one, run=run)

stages.STAGES = tuple(maybe(one) for one in made_stages([]))
stages.run_build(Build("shop", load_plan()))
"""


@pytest.fixture
def shop(state):
    folder = state / "data" / "shop"
    folder.mkdir(parents=True)
    (folder / "events.parquet").write_bytes(b"events")
    return state


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["in the stage", "before the record"])
@pytest.mark.parametrize("name", NAMES)
def test_a_build_that_was_killed_goes_on_where_it_was(shop, tmp_path, monkeypatch, name, moment):
    done = tmp_path / "runs"
    done.touch()
    environ = os.environ | {"RUNS": str(done), "PYTHONPATH": str(Path(__file__).parents[2])}
    helpers = str(Path(__file__).parent)
    killed = subprocess.run([sys.executable, "-c", KILLED, helpers, name, moment], env=environ, check=False)
    assert killed.returncode == -9
    assert read_record(Build("shop", load_plan()), name) is None

    runs: list[str] = []
    monkeypatch.setattr(stages, "STAGES", made_stages(runs))
    records = run_build(Build("shop", load_plan()))  # at once: the lease of a dead process of this host is taken over
    assert runs == list(NAMES[NAMES.index(name) :])
    before = done.read_text().split()
    assert before == list(NAMES[: NAMES.index(name) + (moment == "before the record")])
    again = run_build(Build("shop", load_plan()))
    assert {n: r.hash for n, r in again.items()} == {n: r.hash for n, r in records.items()}
    assert runs == list(NAMES[NAMES.index(name) :])


def test_the_same_build_triggered_twice_at_the_same_instant_is_one(shop, monkeypatch):
    runs: list[str] = []
    monkeypatch.setattr(stages, "STAGES", made_stages(runs))
    barrier, found = threading.Barrier(3), []

    def build():
        barrier.wait()
        found.append(run_build(Build("shop", load_plan())))

    threads = [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runs == list(NAMES)
    assert len(found) == 3 and all(one == found[0] for one in found)
    assert [b.stage for b in Builds(Registry().database).last()] == ["export", "train", "index"]
