"""The verbs, as the launcher calls them, and what an import costs an app."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edge.bundle import Bundle
from edge.features import features
from edge.locate import find_release, read_profiles
from edge.prompts import Made
from schemas.errors import ReleaseError
from schemas.release import PROFILES

ROOT = Path(__file__).parent.parent.parent
NOW_MS = 1_772_359_500_123


def verb(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge", "edge", *map(str, args)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def sessions(tmp_path: Path, release, key, event) -> tuple[Path, list[dict], int]:
    """A known user of the last bucket, a stranger in two sessions, one without local events, one of unknown items."""
    users = read_profiles(release, key).users
    known = max(users, key=lambda user: users[user])
    lines = [
        {"user_id": known, "at": NOW_MS, "items": ["x"], "local_events": [event(n, user_id=known) for n in range(3)]},
        {"user_id": "stranger", "at": NOW_MS, "items": [], "local_events": [event(5, user_id="stranger")]},
        {"user_id": "stranger", "at": NOW_MS, "items": [], "local_events": [event(6, user_id="stranger")]},
        {"user_id": "quiet", "at": NOW_MS, "items": [], "local_events": []},
        {"user_id": "lost", "at": NOW_MS, "items": [], "local_events": [event(1, user_id="lost", item_id="gone")]},
    ]
    path = tmp_path / "targets.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path, lines, users[known]


def prompts(tmp_path: Path, targets: Path, release: object, key_path: Path, *more: object):
    out = tmp_path / "prompts.jsonl"
    ran = verb("prompts", "--targets", targets, "--out", out, "--release", release, "--key", key_path, "--json", *more)
    return ran, out


@pytest.fixture
def of_release(parts) -> tuple[Bundle, tuple[object, ...]]:
    return parts.as_bundle(), ()


@pytest.fixture
def of_bundle(bundle, bundle_folder) -> tuple[Bundle, tuple[object, ...]]:
    return bundle, ("--bundle", bundle_folder)


@pytest.fixture(params=["of_release", "of_bundle"])
def device(request) -> tuple[Bundle, tuple[object, ...]]:
    """What the embeddings are made with, and the arguments that ask for it."""
    return request.getfixturevalue(request.param)


def test_prompts_are_made_with_each_users_bucket_and_clock(tmp_path, sessions, release, key_path, device) -> None:
    path, lines, bucket = sessions
    bundle, more = device
    ran, out = prompts(tmp_path, path, release, key_path, *more)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["sessions"], result["encoded"]) == (4, 4)
    assert result["reasons"] == {"ok": 3, "no_events": 1}
    assert result["events"] == {"ok": 5, "unknown_item": 1}
    assert set(result["encode_ms"]) == {"p50", "p99"}
    made = [msgspec.json.decode(line, type=Made) for line in out.read_bytes().splitlines()]
    assert [one.user_id for one in made] == [lines[0]["user_id"], "stranger", "stranger", "lost"]
    assert bucket > 0
    for one, line, number in zip(made[:3], lines[:3], [bucket, 0, 0], strict=True):
        expected = encoded(bundle, line["local_events"], number)
        assert one.prompt.release == bundle.release
        assert np.allclose(np.frombuffer(one.prompt.rows, "<f4"), expected.ravel(), atol=1e-6)
    assert np.array_equal(np.frombuffer(made[3].prompt.rows, "<f4"), bundle.prompt_defaults[0].ravel())


def encoded(bundle, events, bucket: int) -> np.ndarray:
    from edge.encoder import OnnxEncoder

    encoder = OnnxEncoder(bundle.graph)
    return encoder.run(features(events, bundle.codes, bundle.sizes, bucket, NOW_MS).feeds, encoder.switch())


def test_limit_takes_the_first_sessions(tmp_path, sessions, release, key_path) -> None:
    ran, out = prompts(tmp_path, sessions[0], release, key_path, "--limit", 1)
    assert json.loads(ran.stdout)["sessions"] == 1
    assert len(out.read_bytes().splitlines()) == 1


def test_a_bad_line_is_named_and_nothing_is_written(tmp_path, sessions, release, key_path) -> None:
    path = sessions[0]
    path.write_bytes(path.read_bytes() + b'{"user_id": "u", "at": "yesterday"}\n')
    ran, out = prompts(tmp_path, path, release, key_path)
    assert ran.returncode == 3
    assert "targets.jsonl:6" in json.loads(ran.stdout)["where"]
    assert "$.at" in json.loads(ran.stdout)["error"]
    assert not out.exists()


def test_no_such_release_or_targets_is_said(tmp_path, sessions, release, key_path) -> None:
    ran, _ = prompts(tmp_path, sessions[0], "no-such-release", key_path)
    assert (ran.returncode, json.loads(ran.stdout)["where"]) == (4, "--release")
    ran, _ = prompts(tmp_path, tmp_path / "none.jsonl", release, key_path)
    assert ran.returncode == 3
    assert "none.jsonl" in json.loads(ran.stdout)["where"]


def test_a_limit_or_a_place_that_cannot_be_is_said(tmp_path, sessions, release, key_path) -> None:
    ran, _ = prompts(tmp_path, sessions[0], release, key_path, "--limit", -1)
    assert (ran.returncode, json.loads(ran.stdout)["where"]) == (3, "--limit")
    ran, _ = prompts(tmp_path / "nowhere", sessions[0], release, key_path)
    assert (ran.returncode, json.loads(ran.stdout)["where"]) == (3, "--out")


def test_a_release_is_found_by_its_id(release, monkeypatch, tmp_path, bundle) -> None:
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / bundle.release).symlink_to(release.resolve())
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    assert find_release(bundle.release).samefile(release)


def test_changed_profiles_are_refused(copied, key) -> None:
    (copied / PROFILES).write_bytes(b"\x90")
    with pytest.raises(ReleaseError, match="differs"):
        read_profiles(copied, key)


def test_bundle_and_rollout_as_the_launcher_calls_them(tmp_path, release, key_path, monkeypatch) -> None:
    monkeypatch.setenv("BEFOREHAND_SIGNING_KEY", str(key_path.with_suffix(".pem")))
    out = tmp_path / "edge"
    made = json.loads(
        verb("bundle", "--release", release, "--key", key_path, "--out", out, "--graph", "fp32", "--json").stdout
    )
    assert (made["new"], made["graph"], made["bundle_bytes"] > 0) == (True, "fp32", True)
    plan = re.sub(r"(?ms)^\[edge\].*?(?=^\[|\Z)", "", (ROOT / "plan.toml").read_text())
    (tmp_path / "plan.toml").write_text(f'{plan}\n[edge]\nshare = 0.1\nmin_app = "3"\n')
    monkeypatch.setenv("BEFOREHAND_PLAN", str(tmp_path / "plan.toml"))
    ran = verb("rollout", "--bundle", made["id"], "--out", out, "--json")
    assert json.loads(ran.stdout)["offers"] == [{"id": made["id"], "share": 0.1, "min_app": "3"}]
    ran = verb("rollout", "--bundle", made["id"], "--out", out, "--share", "0.25", "--min-app", "2.1", "--json")
    assert json.loads(ran.stdout)["offers"] == [{"id": made["id"], "share": 0.25, "min_app": "2.1"}]
    assert verb("rollout", "--bundle", made["id"], "--out", out, "--share", "2", "--json").returncode == 3
    missing = verb("rollout", "--bundle", "no-such-bundle", "--out", out, "--json")
    assert missing.returncode == 4
    assert "no-such-bundle" in json.loads(missing.stdout)["where"]


def test_bench_measures_the_vectors(key_path) -> None:
    ran = verb("bench", "--key", key_path, "--runs", "3", "--json")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["max_abs_difference"] <= 1e-5
    assert set(result) >= {"encode_ms", "cold_start_ms", "bundle_bytes", "graph", "measured"}


@pytest.mark.parametrize("job", ["bundle", "rollout", "prompts", "vectors", "bench"])
def test_help_has_an_example(job: str) -> None:
    assert f"./beforehand edge {job} --" in verb(job, "--help").stdout


def test_an_app_imports_nothing_heavy() -> None:
    code = "import json, sys, edge.runtime; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(json.loads(ran.stdout))
    assert "edge" in loaded
    others = {"offline", "nearline", "streaming", "online", "dags", "infra"}
    heavy = {"torch", "pyflink", "apache_beam", "airflow", "sqlalchemy", "onnxruntime", "redis", "rich"}
    assert not loaded & (others | heavy)
