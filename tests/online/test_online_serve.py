"""The service as a process: start, answer, measure, switch releases under load, lose Redis, end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from online_values import FIXTURES, make_candidates, make_state, patient_plan, put

from online.breaker import SPAN_S
from online.client import RecallClient
from schemas.locations import ROOT
from schemas.names import Reason, Rung, State
from schemas.registry import Registry, ReleaseRow, Status
from schemas.state import IntentState

pytestmark = pytest.mark.slow
USERS = [f"user {number}" for number in range(12)]


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def home(tmp_path, monkeypatch, redis_url) -> Path:
    """A state folder of its own, with an empty registry and a patient plan."""
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    monkeypatch.setenv("BEFOREHAND_PLAN", str(patient_plan(tmp_path)))
    monkeypatch.setenv("BEFOREHAND_VERIFY_KEY", str(FIXTURES / "release.pub"))
    monkeypatch.setenv("BEFOREHAND_REDIS", redis_url)
    monkeypatch.delenv("BEFOREHAND_REGISTRY", raising=False)
    return tmp_path


def publish(*folders_and_ids) -> Registry:
    registry = Registry()
    for release_id, folder in folders_and_ids:
        registry.publish(ReleaseRow(release_id, str(folder), "", {}, Status.FUTURE, now_ms()), why="test")
    return registry


def start(home: Path, *arguments: str, wait: bool = True) -> subprocess.Popen:
    command = [sys.executable, "-m", "online", "serve", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stderr=(home / "log").open("wb"), stdout=subprocess.DEVNULL)
    address = home / "run" / "online" / "address.json"
    while wait and not address.exists():
        assert process.poll() is None, (home / "log").read_text()
        time.sleep(0.02)
    return process


def address(home: Path) -> dict:
    return json.loads((home / "run" / "online" / "address.json").read_text())


def stop(process: subprocess.Popen) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(20)


@pytest.fixture
def served(home, stored, release):
    """A running service with the fixture release; yields (url, process)."""
    publish((release.id, release.folder)).promote(release.id, why="test")
    process = start(home)
    try:
        yield address(home)["url"], process
    finally:
        if process.poll() is None:
            stop(process)


def verb(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "online", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False)


def recent(release, user_id: str, **changes) -> IntentState:
    return make_state(release, user_id, made_at=now_ms(), watermark=now_ms() - 60_000, **changes)


def test_it_says_where_it_is_and_ends_when_told(home, served):
    url, process = served
    assert address(home)["pid"] == process.pid
    with httpx.Client(base_url=url) as client:
        assert client.get("/readyz").status_code == 200
        assert "beforehand_answers" in client.get("/metrics").text
    assert stop(process) == 0
    assert not (home / "run" / "online" / "address.json").exists()


def test_a_ready_file(home, stored, tmp_path):
    process = start(home, "--ready-file", str(tmp_path / "ready.json"))
    try:
        until((tmp_path / "ready.json").exists)
        assert json.loads((tmp_path / "ready.json").read_text()) == address(home)
        with httpx.Client(base_url=address(home)["url"]) as client:
            assert client.get("/readyz").status_code == 503, "nothing is promoted yet"
            assert client.post("/v1/recall", json={"user_id": "u1"}).json()["rung"] == "none"
    finally:
        assert stop(process) == 0


def test_others_than_the_loopback_need_a_key(home, stored):
    refused = verb("serve", "--host", "0.0.0.0", "--json")
    assert refused.returncode == 1
    assert "BEFOREHAND_API_KEY" in json.loads(refused.stdout)["mend"]
    assert verb("serve", "--host", "nowhere").returncode == 1


def test_a_port_in_use_is_named(served):
    url, _ = served
    refused = verb("serve", "--port", url.rpartition(":")[2], "--json")
    assert refused.returncode == 5
    assert json.loads(refused.stdout)["where"] == "--port"


def test_a_switch_under_load(home, served, stored, release, other):
    url, _ = served
    registry = publish((other.id, other.folder))
    for user in USERS:
        put(stored, recent(release, user))
    answers, stopped = [], threading.Event()

    def load():
        with RecallClient(url, timeout_s=10) as client:
            while not stopped.is_set():
                answers.extend(client.recall(user, k=20, budget_ms=5000) for user in USERS)

    worker = threading.Thread(target=load)
    worker.start()
    try:
        with httpx.Client(base_url=url) as client:
            registry.promote(other.id, why="test")
            until(lambda: client.get("/v1/releases").json()["current"] == other.id)
            for user in USERS[::2]:
                put(stored, recent(other, user))
                stored.publish("bh:changed", b"\x91" + _packed(user))
            seen = len(answers)
            until(lambda: len(answers) > seen + 3 * len(USERS))
    finally:
        stopped.set()
        worker.join()
    by_release = {made.id: made for made in (release, other)}
    last = {answer.user_id: answer for answer in answers}
    assert {last[user].release for user in USERS[::2]} == {other.id}
    assert {last[user].release for user in USERS[1::2]} == {release.id}
    lists = {(a.user_id, a.release): [i.item_id for i in a.items] for a in answers}
    for answer in answers:
        assert answer.rung is Rung.GENERATE
        assert answer.assets["intent_state"].state is State.FRESH
        assert answer.release in by_release
        assert [item.item_id for item in answer.items] == lists[answer.user_id, answer.release]


def _packed(text: str) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(text)


def until(condition, limit_s: float = 20.0) -> None:
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_bad_release_never_takes_traffic(home, served, release, tmp_path):
    url, _ = served
    registry = publish(("0000000000000000", tmp_path / "not there"))
    registry.promote("0000000000000000", why="test")
    with httpx.Client(base_url=url) as client:
        until(lambda: "0000000000000000" in client.get("/v1/releases").json()["problems"])
        assert client.get("/v1/releases").json()["current"] == release.id
        assert client.post("/v1/recall", json={"user_id": "u1"}).json()["release"] == release.id
    assert "0000000000000000" in (home / "log").read_text()


def test_redis_goes_and_nobody_sees_an_error(home, stored, release):
    publish((release.id, release.folder)).promote(release.id, why="test")
    process = start(home, "--redis", "redis://127.0.0.1:9/0")
    try:
        with RecallClient(address(home)["url"]) as client:
            answers = [client.recall("u1", budget_ms=5000) for _ in range(5)]
            time.sleep(SPAN_S)
            answers += [client.recall("u1", budget_ms=5000) for _ in range(5)]
    finally:
        assert stop(process) == 0
    reasons = [answer.assets["intent_state"].reason for answer in answers]
    assert reasons[:5] == [Reason.STORE_DOWN] * 5
    assert Reason.CIRCUIT_OPEN in reasons[5:]
    # The fixture is old, so its lists are past their age and the popular one answers.
    assert {answer.rung for answer in answers} == {Rung.POPULAR}
    assert all(answer.items for answer in answers)


def test_ask_measures(home, served, stored, release):
    url, _ = served
    ids = release.catalogue.item_ids
    for user in USERS[:8]:
        put(stored, recent(release, user))
        put(stored, make_candidates(release, user, made_at=now_ms()))
    with RecallClient(url) as client:
        firsts = {user: [item.item_id for item in client.recall(user, k=2, budget_ms=5000).items] for user in USERS}
    targets, prompts = home / "targets.jsonl", home / "prompts.jsonl"
    lines = [
        {"user_id": user, "at": now_ms(), "items": [firsts[user][0], "withdrawn"], "local_events": []} for user in USERS
    ]
    lines.append({"user_id": "no items", "items": []})
    targets.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    rows = "AACAPw==" * 1
    prompt = {"release": release.id, "rows": rows, "num_rows": 1, "age_ms": 0}
    prompts.write_text(json.dumps({"user_id": USERS[0], "prompt": prompt}) + "\n")
    asked = ["--targets", str(targets), "--prompts", str(prompts), "--budget-ms", "5000"]
    done = verb("ask", "--url", url, *asked, "--whole", "--json")
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["recall_at_10"] == result["recall_at_50"] == 0.5
    assert result["users"] == len(USERS)
    assert result["rungs"] == {"generate": len(USERS)}
    assert result["rungs_with_state"] == {"generate": 8}
    assert result["states"] == {"FRESH": 8, "MISSING": 4}
    assert result["unknown_items"] == 0
    assert result["errors"] == {}
    assert result["latency_ms"]["p50"] <= result["latency_ms"]["p99"] <= result["latency_ms"]["max"]
    assert set(result["ledger_ms"]["stages"]) == {"parse", "store", "queue", "decode", "build"}
    assert result["example"]["items"][0]["item_id"] in ids
    assert result["with_prompt"]["users"] == result["without_prompt"]["users"] == 1
    assert result["with_prompt"]["prompts_used"] == 0, "its shape was wrong"
    stages = result["whole"]["stages"]
    assert {"store", "intent_encode", "neighbours", "prompt_encode", "decode"} <= set(stages)
    assert result["whole"]["users"] == 8
    assert result["whole"]["all_live_ms"] > result["whole"]["beforehand_ms"] > 0


def test_ask_and_explain_one_user(served, stored, release):
    url, _ = served
    put(stored, recent(release, "u[1]"))
    asked = ["--user", "u[1]", "-k", "3", "--budget-ms", "5000"]
    one = json.loads(verb("ask", "--url", url, *asked, "--json").stdout)
    assert (one["user_id"], len(one["items"]), one["rung"]) == ("u[1]", 3, "generate")
    shown = verb("explain", "u[1]", "--url", url, "-k", "3")
    text = shown.stderr.decode()
    assert shown.returncode == 0
    assert "u[1]" in text
    for word in ("generate", "nearline", "cohort", "popular", "intent_state", "FRESH", "Done beforehand"):
        assert word in text
    explained = json.loads(verb("explain", "u[1]", "--url", url, "--json").stdout)
    assert set(explained) == {"explanation", "ledger"}


def test_bad_input_is_named(served, home):
    url, _ = served
    (home / "bad.jsonl").write_text('{"user_id": "u", "items": ["a"]}\n{"user_id": 5}\n')
    failed = verb("ask", "--url", url, "--targets", str(home / "bad.jsonl"), "--json")
    assert failed.returncode == 3
    assert json.loads(failed.stdout)["where"].endswith("bad.jsonl:2")
    assert verb("ask", "--url", "http://127.0.0.1:9", "--user", "u").returncode == 1


def test_it_starts_without_the_other_tiers(home):
    banned = ["torch", "apache_beam", "pyflink", "airflow", "offline", "nearline", "streaming", "edge", "dags", "infra"]
    code = f"import sys, online.server, online.ask, online.picture; print([m for m in {banned} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
