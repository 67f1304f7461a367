"""The verdict: counts from pytest's own report, one plain last line, and no pass without a test."""

import json
from dataclasses import replace

import pytest

from infra import checks, doctor, room_tests
from infra.paths import ROOT, Layout
from infra.room_tests import RoomResult

PASSING = "def test_one():\n    pass\n"
MIXED = (
    "import pytest\n\ndef test_good():\n    pass\n\ndef test_bad():\n    assert False\n\n"
    "@pytest.mark.slow\ndef test_slow():\n    pass\n\n@pytest.mark.skip\ndef test_left():\n    pass\n"
)


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """A checkout with one room, whose environment is the one that runs this test."""
    (tmp_path / "tests" / "nearline").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    layout = replace(Layout.current(), root=tmp_path, state=tmp_path / "state")
    monkeypatch.setattr(Layout, "env_python", lambda self, tier: ROOT / ".beforehand/envs/nearline/bin/python")
    return layout


def write(layout, text):
    (layout.root / "tests" / "nearline" / "test_it.py").write_text(text)


def run(layout, text, *, fast=True, args=()):
    write(layout, text)
    return room_tests.run_room_tests(layout, "nearline", list(args), fast=fast)


def counts(result):
    return result.passed, result.failed, result.skipped


def test_counts_are_pytests_own(layout):
    assert counts(run(layout, PASSING)) == (1, 0, 0)
    assert counts(run(layout, MIXED)) == (1, 1, 1)


def test_slow_tests_run_unless_fast(layout):
    (layout.root / "nearline").mkdir()
    assert counts(run(layout, MIXED, fast=False)) == (2, 1, 1)


def test_a_broken_import_is_a_failure(layout):
    assert run(layout, "import nowhere_at_all\n").failed == 1


def test_wrong_pytest_arguments_are_a_failure(layout):
    assert run(layout, PASSING, args=["--no-such-option"]).failed == 1


def test_nothing_selected_is_no_failure(layout):
    assert counts(run(layout, PASSING, args=["-k", "nothing_like_it"])) == (0, 0, 0)


def test_only_rooms_with_tests_are_run(layout):
    assert room_tests.rooms_with_tests(layout) == []
    write(layout, PASSING)
    assert room_tests.rooms_with_tests(layout) == ["nearline"]


def test_tests_do_not_reach_the_developers_services(layout, monkeypatch):
    monkeypatch.setenv("BEFOREHAND_REDIS", "redis://precious")
    text = "import os\n\ndef test_it():\n    assert 'BEFOREHAND_REDIS' not in os.environ\n"
    assert counts(run(layout, text)) == (1, 0, 0)


@pytest.mark.parametrize(
    ("results", "line", "code"),
    [
        ([RoomResult("a", 2, 0, 1, 0.1), RoomResult("b", 3, 0, 0, 0.1)], "5 passed, 0 failed, 1 skipped", 0),
        ([RoomResult("a", 2, 1, 0, 0.1)], "2 passed, 1 failed, 0 skipped", 1),
        ([RoomResult("a", 0, 0, 4, 0.1)], "0 passed, 0 failed, 4 skipped", 1),
        ([], "0 passed, 0 failed, 0 skipped", 1),
    ],
)
def test_the_last_line_and_the_exit_code(results, line, code, capsys):
    assert checks._verdict(results) == code
    assert capsys.readouterr().out.splitlines()[-1] == line


def test_paths_choose_the_rooms(layout):
    write(layout, PASSING)
    assert checks._selected(layout, ["-k", "x"]) == (["nearline"], ["-k", "x"])
    assert checks._selected(layout, ["tests/nearline/test_it.py"])[0] == ["nearline"]
    assert checks._selected(layout, ["tests/online"])[0] == []


def test_every_folder_of_tests_has_an_environment():
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders - {"bench"} <= set(room_tests.ROOM_TIERS), "add the folder to infra/room_tests.py"


def test_the_doctor_names_a_mend_for_each_lack(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BEFOREHAND_STATE", str(tmp_path))
    assert doctor.main(["--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert {"python", "uv", "java", "environment streaming", "service redis", "registry"} <= {
        one["name"] for one in findings
    }
    assert all(one["ok"] or one["mend"] for one in findings)
    assert doctor.main([]) == 0
    assert "./beforehand up redis" in capsys.readouterr().out
