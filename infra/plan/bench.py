"""``./beforehand bench plan``: how long plans and promotions take, and whether a promotion is noticed by a request.

The service, Redis and both releases are made for the measurement, in a folder of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import msgspec

from infra.explore import served
from infra.paths import ROOT, Layout
from infra.plan.evaluate import Evaluator
from infra.stack import Stack
from schemas.cli import Result, main, parser, say, step, verb
from schemas.plan import load_plan
from schemas.registry import Registry, ReleaseRow, Status
from schemas.release import Manifest, content_id, load_private_key, read_manifest, write_manifest

FIXTURES = ROOT / "tests" / "fixtures"
NUM_ASSETS = 100
CLIENTS = 4
BUDGET_MS = 2000
TOLERANCE = 1e-4
SERVES_S = 60.0
PARSE = """
import json, tempfile, time
from pathlib import Path
from dags.airflow_home import DAGS_FOLDER, enter
home = tempfile.mkdtemp()
enter(Path(home))
from airflow.dag_processing.dagbag import DagBag
begun = time.process_time()
bag = DagBag(dag_folder=str(DAGS_FOLDER))
assert not bag.import_errors, bag.import_errors
cpu_s = time.process_time() - begun
print(json.dumps({"cpu_s": cpu_s, "files": {one.file: one.duration.total_seconds() for one in bag.dagbag_stats}}))
"""


def bench(args: argparse.Namespace) -> Result:
    """Run the verb."""
    found: dict[str, Any] = {}
    with step("DAG files parsed, Airflow imported before") as made:
        found |= parse_seconds()
        made(f"{found['dag_parse_s_max']} s at most")
    with step(f"a plan of {NUM_ASSETS} assets explained and applied, its build not counted") as made:
        found |= apply_seconds()
        made(f"{found['apply_s_at_100_assets']} s")
    with step(f"{args.promotions} promotions and rollbacks under load") as made:
        found |= promotions(args.promotions)
        made(f"{found['answers']} answers, {found['failed_requests']} failed, {found['mixed_answers']} mixed")
    return found


def parse_seconds() -> dict[str, Any]:
    """Of the slowest DAG file, in the environment of the DAGs; None with the reason when there is none."""
    python = Layout.current().env_python("dags")
    if not python.exists():
        say("left out: ./beforehand env dags")
        return {"dag_parse_s_max": None, "dag_parse_cpu_s": None, "num_dag_files": 0}
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([python, "-c", PARSE], env=environ, stdout=subprocess.PIPE, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    by_file: dict[str, float] = said["files"]
    return {
        "dag_parse_s_max": round(max(by_file.values()), 4),
        "dag_parse_cpu_s": round(said["cpu_s"], 4),
        "num_dag_files": len(by_file),
    }


class _Unbuilt:
    """A build in which every stage runs and takes no time: what is left is the plan's own work."""

    def __init__(self, path: Path, sets: Sequence[str], _data: str) -> None:
        self._digest = load_plan(path, sets).digest()

    def explain(self) -> dict[str, Any]:
        stages = [
            {"stage": f"stage{n}", "hash": self._digest, "runs": True, "why": ["settings changed"]}
            for n in range(NUM_ASSETS)
        ]
        return {"explain": stages, "digest": self._digest}

    def build(self, expect: str) -> dict[str, Any]:
        assert expect == self._digest
        return {"changed": [], "release": None}


def apply_seconds() -> dict[str, float]:
    """Medians of five, by the clock and of the processor: a plan of a hundred assets against a registry in SQLite."""
    text = (ROOT / "plan.toml").read_text("utf-8")
    more = NUM_ASSETS - len(load_plan(ROOT / "plan.toml").assets)
    text += "".join(
        f'\n[assets.extra_{n}]\ntier = "nearline"\ninputs = ["intent_state"]\nfresh_for = "1h"\nusable_for = "1d"\n'
        f'budget = "1s"\nfallback = "cohort_lists"\n'
        for n in range(more)
    )
    took: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.toml"
        path.write_text(text, "utf-8")
        evaluator = Evaluator(Registry(f"sqlite:///{folder}/registry.db"), _Unbuilt)
        for n in range(5):
            begun, cpu = time.monotonic(), time.process_time()
            frozen = evaluator.freeze(path, [f"model.epochs={n + 2}"], "shop")
            assert evaluator.apply(frozen, why="bench")["changed"]
            took.append((time.monotonic() - begun, time.process_time() - cpu))
    seconds, cpu_s = (round(median(some), 4) for some in zip(*took, strict=True))
    return {"apply_s_at_100_assets": seconds, "apply_cpu_s_at_100_assets": cpu_s}


def promotions(count: int) -> dict[str, Any]:
    """A service under load while its release changes ``count`` times, promotions and rollbacks in turn."""
    state = Path(tempfile.mkdtemp(prefix="beforehand-bench-"))
    outer = os.environ.get("BEFOREHAND_STATE")
    os.environ["BEFOREHAND_STATE"] = str(state)
    try:
        first, second = make_releases(state)
        registry = Registry()
        registry.promote(first, why="bench")
        layout = Layout(root=ROOT, state=state)
        with served(layout):
            url = Stack(state).environment()["BEFOREHAND_ONLINE"]
            return asyncio.run(_measure(url, registry, second, count))
    finally:
        os.environ.pop("BEFOREHAND_STATE")
        if outer is not None:
            os.environ["BEFOREHAND_STATE"] = outer
        shutil.rmtree(state, ignore_errors=True)


def make_releases(state: Path) -> tuple[str, str]:
    """The fixture release, and one of the same files that weighs its scores otherwise: other answers, another id."""
    (state / "keys").mkdir(parents=True)
    for name in ("release.pem", "release.pub"):
        shutil.copy(FIXTURES / name, state / "keys" / name)
    key = load_private_key(FIXTURES / "release.pem")
    ids: list[str] = []
    for weights in (None, [0.1, 2.0, 0.1, 0.02]):
        draft = state / "releases" / "draft"
        shutil.copytree(FIXTURES / "release", draft)
        manifest: Manifest = read_manifest(draft, key.public_key())
        if weights:
            model = msgspec.structs.replace(manifest.content.model, weights=weights)
            content = msgspec.structs.replace(manifest.content, model=model)
            manifest = msgspec.structs.replace(manifest, content=content, id=content_id(content))
            write_manifest(draft, manifest, key)
        draft.rename(state / "releases" / manifest.id)
        row = ReleaseRow(
            manifest.id, str(state / "releases" / manifest.id), manifest.id, {}, Status.FUTURE, manifest.made_at
        )
        Registry().publish(row, why="bench")
        ids.append(manifest.id)
    return ids[0], ids[1]


class Tally:
    """What the clients saw. ``right`` holds, by release, what it answers when it alone serves."""

    def __init__(self) -> None:
        self.answers = self.failed = self.mixed = self.not_generated = 0
        self.right: dict[str, list[tuple[str, float]]] = {}

    def count(self, response: httpx.Response) -> None:
        """Failed: no answer, or an empty one. Mixed: generated, and not what its release answers."""
        self.answers += 1
        said = msgspec.json.decode(response.content) if response.status_code == 200 else {}
        if not said.get("items"):
            self.failed += 1
        elif said["rung"] != "generate":
            self.not_generated += 1
        elif not same(scores(said), self.right[said["release"]]):
            self.mixed += 1


def scores(said: dict[str, Any]) -> list[tuple[str, float]]:
    """Items with their scores."""
    return [(item["item_id"], item["score"]) for item in said["items"]]


def same(one: list[tuple[str, float]], two: list[tuple[str, float]]) -> bool:
    """The same items in the same order, scores within the tolerance."""
    return len(one) == len(two) and all(
        a == b and abs(x - y) < TOLERANCE for (a, x), (b, y) in zip(one, two, strict=True)
    )


async def _measure(url: str, registry: Registry, second: str, count: int) -> dict[str, Any]:
    tally, took = Tally(), list[float]()
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        first = registry.pointer().current
        assert first is not None
        tally.right[first] = await _reference(client, first)
        registry.promote(second, why="bench")
        tally.right[second] = await _reference(client, second)
        assert not same(tally.right[first], tally.right[second])
        done = asyncio.Event()
        clients = [asyncio.create_task(_ask_on(client, tally, done)) for _ in range(CLIENTS)]
        for n in range(count):
            begun = time.monotonic()
            if n % 2 == 0:
                registry.rollback(why="bench")
            else:
                registry.promote(second, why="bench")
            await _until(client, second if n % 2 else first)
            took.append(time.monotonic() - begun)
        done.set()
        await asyncio.gather(*clients)
    return {
        "promotions": count,
        "promotion_s": round(median(took), 3),
        "promotion_s_max": round(max(took), 3),
        "answers": tally.answers,
        "failed_requests": tally.failed,
        "mixed_answers": tally.mixed,
        "not_generated": tally.not_generated,
    }


async def _reference(client: httpx.AsyncClient, release: str) -> list[tuple[str, float]]:
    """What ``release`` answers once it serves."""
    await _until(client, release)
    said = msgspec.json.decode((await _ask(client)).content)
    assert (said["release"], said["rung"]) == (release, "generate"), said
    return scores(said)


async def _until(client: httpx.AsyncClient, release: str) -> None:
    """Wait until the service answers by ``release``."""
    until = time.monotonic() + SERVES_S
    while msgspec.json.decode((await client.get("/v1/releases")).content)["current"] != release:
        assert time.monotonic() < until, f"{release} does not serve after {SERVES_S} s"
        await asyncio.sleep(0.02)


async def _ask(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/v1/recall", json={"user_id": "nobody", "k": 10, "budget_ms": BUDGET_MS})


async def _ask_on(client: httpx.AsyncClient, tally: Tally, done: asyncio.Event) -> None:
    while not done.is_set():
        try:
            tally.count(await _ask(client))
        except httpx.HTTPError:
            tally.answers += 1
            tally.failed += 1


def run() -> None:
    """The verb's parser."""
    top, verbs = parser("bench", "Plans and promotions.")
    sub = verb(verbs, "bench", bench, "measure plans and promotions", "bench plan --json")
    sub.add_argument("what", choices=("plan",))
    sub.add_argument("--promotions", type=int, default=20, metavar="N", help="promotions and rollbacks (default: 20)")
    main(top)


if __name__ == "__main__":
    run()
