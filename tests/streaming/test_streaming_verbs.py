"""The verbs as a person types them, without a cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.errors import BeforehandError
from schemas.locations import ROOT
from schemas.topics import TOPICS, missing_topics
from streaming.windows import find_jars


def stream(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("BEFOREHAND_")}
    command = [sys.executable, "-m", "streaming", "stream", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**own, **environ}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["deploy", "upgrade", "rollback", "status", "savepoint", "stop", "sql"])
def test_every_verb_shows_an_example(name: str) -> None:
    done = stream(name, "--help")
    assert done.returncode == 0
    assert f"./beforehand stream {name}" in done.stdout
    assert "--json" in done.stdout


def test_without_an_address_the_mend_is_named(tmp_path: Path) -> None:
    done = stream("deploy", "--json", BEFOREHAND_STATE=str(tmp_path))
    assert done.returncode == 5
    assert json.loads(done.stdout)["where"] == "BEFOREHAND_FLINK"


def test_a_bad_plan_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    addresses = ("--flink", "127.0.0.1:9", "--kafka", "127.0.0.1:9")
    done = stream("deploy", *addresses, "--set", "nearline.refesh=1s", "--json", BEFOREHAND_STATE=str(tmp_path))
    assert done.returncode == 2
    assert "nearline.refesh" in json.loads(done.stdout)["where"]


def test_parallelism_below_one_is_refused() -> None:
    assert "0 is not 1 or more" in stream("deploy", "--parallelism", "0").stderr


def test_sql_shows_the_plans_numbers() -> None:
    done = stream("sql", "--set", "model.window=12", "--json")
    shown = json.loads(done.stdout)
    assert any("LAST_EVENTS" in one and ", 12)" in one for one in shown["statements"])
    text = stream("sql", "--set", "model.window=12").stdout
    assert all(one in text for one in shown["statements"])


def test_missing_jars_name_the_folder_and_the_mend(tmp_path: Path) -> None:
    (tmp_path / "beforehand-flink-1.jar").touch()
    with pytest.raises(BeforehandError, match=r"0 jars are called flink-sql-connector-kafka.*mvn"):
        find_jars(tmp_path)
    (tmp_path / "flink-sql-connector-kafka-5.jar").touch()
    assert [jar.name for jar in find_jars(tmp_path)] == ["beforehand-flink-1.jar", "flink-sql-connector-kafka-5.jar"]
    (tmp_path / "beforehand-flink-2.jar").touch()
    with pytest.raises(BeforehandError, match="2 jars are called beforehand-flink"):
        find_jars(tmp_path)


def test_only_missing_topics_are_made() -> None:
    assert set(missing_topics({"events", "unrelated"})) == {"windows", "dead-letters", "forgotten", "catalogue"}
    assert missing_topics(set(TOPICS)) == {}
    assert TOPICS["windows"].settings["cleanup.policy"] == "compact"
    assert TOPICS["events"].settings["message.timestamp.type"] == "LogAppendTime"


@pytest.mark.slow
def test_the_java_side_passes_its_own_tests(tmp_path: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("Maven is not installed: `./beforehand up flink` does it")
    # In a copy: the launcher may be building the jars at this moment.
    shutil.copytree(ROOT / "streaming" / "java", tmp_path / "java", ignore=shutil.ignore_patterns("target"))
    done = subprocess.run([maven, "-B", "test"], cwd=tmp_path / "java", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3_000:]
    counts = re.findall(r"Tests run: (\d+), Failures: 0, Errors: 0, Skipped: 0", done.stdout)
    assert max(map(int, counts)) > 100
