"""An upgrade and a rollback of the running job, and one that goes wrong, on a real broker and cluster."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from stream_bench import AT, WINDOW, Bench, disordered, event, naive, settle_on

from infra.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("upgrade"))
    try:
        yield made
    finally:
        made.close()


def refused(bench: Bench, *arguments: str) -> dict[str, Any]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")}
    environ["BEFOREHAND_STATE"] = str(bench.state)
    command = [str(ROOT / "beforehand"), "stream", *arguments, "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def goes_on(bench: Bench, expected: dict[str, Any], number: int) -> None:
    """One more event of one user: only a job that has the state gives the whole window."""
    bench.send([event("u5", number, AT + 1_000 + number)])
    newest = {"event_id": f"u5-{number}", "item_id": f"i{number % 17}", "at": AT + 1_000 + number}
    kind = ("impression", "click", "cart", "purchase")[number % 4]
    expected["u5"] = [{**newest, "kind": kind}, *expected["u5"]][:WINDOW]
    settle_on(bench, expected)


def test_upgrade_rollback_and_the_way_back(bench: Bench) -> None:
    assert "stream deploy" in refused(bench, "upgrade", "--within", "5")["mend"]
    first = bench.deploy()["job_id"]
    assert "stream upgrade" in refused(bench, "rollback")["mend"]
    events = disordered(random.Random(19), [f"u{number}" for number in range(50)], 25)
    expected = naive(events)
    bench.send(events)
    settle_on(bench, expected)

    done = bench.stream("upgrade", "--set", f"model.window={WINDOW}", "--set", "nearline.refresh=200ms")
    assert (done["replaced"], done["state"], done["users_checked"]) == (first, "RUNNING", 20)
    settle_on(bench, expected)
    goes_on(bench, expected, 100)

    # a job that never gets its slots: the old one runs again, from the same savepoint
    told = refused(bench, "upgrade", "--set", f"model.window={WINDOW}", "--parallelism", "64", "--within", "15")
    assert "not well" in told["error"]
    assert "runs again" in told["mend"]
    status = bench.stream("status")
    assert status["state"] == "RUNNING"
    assert status["job_id"] != done["job_id"]
    goes_on(bench, expected, 101)

    again = bench.stream("upgrade", "--set", f"model.window={WINDOW}", "--set", "nearline.refresh=300ms")
    back = bench.stream("rollback")
    assert back["replaced"] == again["job_id"]
    goes_on(bench, expected, 102)
    assert bench.counted() < len(events), "the topic was read from its start"
    assert bench.dead_letters() == []
