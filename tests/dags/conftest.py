"""A throw-away Airflow for the whole session, and a launcher that only writes down what it was asked."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dags.airflow_home import enter
from dags.form import FORM

# Airflow reads its settings at its first import: this file is imported before any test.
HOME = Path(tempfile.mkdtemp(prefix="beforehand-airflow-"))
enter(HOME)

CHECKOUT = Path(__file__).resolve().parents[2]

LAUNCHER = """#!{python}
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
words = sys.argv[1:]
stage = words[1] if words[0] in ("build", "release", "quality", "edge") else words[0]
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(dict(words=words, cwd=os.getcwd(), pid=os.getpid(), environ=dict(os.environ))) + "\\n")
print(f"progress of {{stage}}", file=sys.stderr, flush=True)
answer = here / f"{{stage}}.json"
usual = dict(code=0, sleep_s=0, out=json.dumps(dict(stage=stage, release="0" * 16, id="b" * 16)))
said = json.loads(answer.read_text()) if answer.exists() else usual
time.sleep(said["sleep_s"])
print("a line before the result")
print(said["out"])
print("a warning at the exit", file=sys.stderr)
sys.exit(said["code"])
"""


@dataclass(frozen=True)
class FakeRoot:
    """A checkout with a launcher that records its calls, in place of the real one."""

    folder: Path

    def answer(self, stage: str, *, code: int = 0, out: str = "", sleep_s: float = 0) -> None:
        """What the launcher does when it is asked for ``stage``."""
        (self.folder / f"{stage}.json").write_text(json.dumps({"code": code, "out": out, "sleep_s": sleep_s}))

    def calls(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def fake_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRoot:
    folder = tmp_path / "a checkout"
    folder.mkdir()
    launcher = folder / "beforehand"
    launcher.write_text(LAUNCHER.format(python=sys.executable))
    launcher.chmod(0o755)
    monkeypatch.setenv("BEFOREHAND_ROOT", str(folder))
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("BEFOREHAND_PLAN", str(CHECKOUT / "plan.toml"))
    return FakeRoot(folder)


@pytest.fixture
def params() -> dict[str, Any]:
    """The values of a run that names none."""
    return {name: field.default for name, field in FORM.items()}


def pytest_unconfigure() -> None:
    shutil.rmtree(HOME, ignore_errors=True)
