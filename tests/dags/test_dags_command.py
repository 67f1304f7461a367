"""Commands are argument lists: nothing that a person types in the form reaches a shell or becomes an option."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from airflow.sdk import Param
from airflow.sdk.exceptions import ParamValidationError

from dags.command import arguments, environment, launcher, root
from dags.form import FORM, defaults_from, form
from schemas.errors import DataError, PlanError


def test_a_stage_of_the_build(params: dict[str, Any]) -> None:
    assert arguments("index", params) == ["build", "index", "--data", "journey", "--json"]


def test_overrides_and_force_go_to_every_stage(params: dict[str, Any]) -> None:
    params |= {"data": "shop", "set": ["model.epochs=1", 'model.seed=2; rm -rf "$HOME"'], "force": True}
    assert arguments("train", params) == [
        *("build", "train", "--data", "shop"),
        *("--set", "model.epochs=1", "--set", 'model.seed=2; rm -rf "$HOME"'),
        *("--force", "--json"),
    ]


def test_an_empty_list_of_the_form_is_none(params: dict[str, Any]) -> None:
    assert "--set" not in arguments("train", params | {"set": None})


def test_data_of_each_source(params: dict[str, Any]) -> None:
    small = params | {"data": "s", "small": True}
    assert arguments("data", small) == ["data", "--name", "s", "--source", "completejourney", "--small", "--json"]
    retail = params | {"source": "online-retail", "file": "/d/retail.parquet"}
    assert arguments("data", retail)[3:] == ["--source", "online-retail", "--file", "/d/retail.parquet", "--json"]
    files = params | {"source": "files", "catalogue": "/d/c.csv", "events": "/d/e.csv"}
    assert arguments("data", files)[3:] == ["--catalogue", "/d/c.csv", "--events", "/d/e.csv", "--json"]
    assert arguments("data", files | {"profiles": "/d/p.csv"})[-3:] == ["--profiles", "/d/p.csv", "--json"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("bundle", "edge bundle --release 0123456789abcdef"),
        ("verify", "release verify 0123456789abcdef"),
        ("gate", "quality gate --release 0123456789abcdef"),
        ("canary", "quality canary --release 0123456789abcdef --share 0.05"),
        ("watch_canary", "quality watch --release 0123456789abcdef --canary --for 5m"),
        ("promote", "release promote 0123456789abcdef --why 'the DAG promote: gate and canary passed'"),
        ("watch", "quality watch --release 0123456789abcdef --for 10m"),
        ("undo", "quality undo --release 0123456789abcdef --why 'the DAG promote: the watch failed'"),
        ("rollout", "edge rollout --bundle fedcba9876543210 --share 0.5"),
        ("freshness", "quality freshness"),
        ("parity", "parity --users 50"),
        ("dead_letters", "quality dead-letters"),
        ("drift", "quality drift --unknown 2 --rest-h 20"),
    ],
)
def test_a_step_after_the_build(params: dict[str, Any], step: str, words: str) -> None:
    params |= {"release": "0123456789abcdef", "bundle": "fedcba9876543210", "share": 0.5}
    assert arguments(step, params) == [*shlex.split(words), "--json"]


def test_without_a_share_the_plans_is_taken(params: dict[str, Any]) -> None:
    assert "--share" not in arguments("rollout", params | {"bundle": "b" * 16})


@pytest.mark.parametrize(("source", "missing"), [("files", "catalogue"), ("online-retail", "file")])
def test_a_source_without_its_file_is_refused_by_name(params: dict[str, Any], source: str, missing: str) -> None:
    with pytest.raises(DataError, match=f"param {missing}"):
        arguments("data", params | {"source": source})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", "--force"),
        ("data", "../other"),
        ("data", "a b"),
        ("data", "shop\n"),
        ("data", ""),
        ("data", "a" * 65),
        ("source", "ftp"),
        ("small", "yes"),
        ("catalogue", "relative.csv"),
        ("catalogue", "/d/c.csv\n--force"),
        ("catalogue", "/d/c.csv\n"),
        ("events", "--json"),
        ("set", ["--force"]),
        ("set", ["model=1"]),
        ("set", ["model.epochs=1\n"]),
        ("set", "model.epochs=1"),
        ("release", "latest"),
        ("release", "0123456789abcdef\n"),
        ("bundle", "--share"),
        ("share", 1.5),
        ("canary_share", None),
        ("watch_for", "soon"),
        ("users", 0),
        ("most", 0),
        ("most", 32),
        ("rest_h", -1),
    ],
)
def test_the_form_refuses(name: str, value: object) -> None:
    field = FORM[name]
    with pytest.raises(ParamValidationError):
        Param(field.default, **field.schema).resolve(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", "journey-small_2"),
        ("catalogue", "/d/my shop/katalog ü.csv"),
        ("catalogue", None),
        ("set", ["model.epochs=1", 'assets.generator.budget="7m"']),
        ("set", None),
    ],
)
def test_the_form_takes(name: str, value: object) -> None:
    field = FORM[name]
    assert Param(field.default, **field.schema).resolve(value) == value


def test_every_default_fits_its_own_pattern() -> None:
    for field in FORM.values():
        assert Param(field.default, **field.schema).resolve() == field.default


def test_other_defaults_come_from_the_environment() -> None:
    defaults = defaults_from({"BEFOREHAND_DAG_PARAMS": '{"data": "shop", "source": "files"}'})
    assert {name: field.default for name, field in form(defaults).items() if name in defaults} == defaults
    assert defaults_from({}) == {}
    with pytest.raises(PlanError, match=r"BEFOREHAND_DAG_PARAMS.*'dta'"):
        form({"dta": "shop"})
    with pytest.raises(PlanError, match="BEFOREHAND_DAG_PARAMS: not a JSON object"):
        defaults_from({"BEFOREHAND_DAG_PARAMS": "shop"})


def test_the_environment_names_state_and_plan_and_holds_no_secret_of_airflow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BEFOREHAND_STATE", "relative")
    monkeypatch.setenv("BEFOREHAND_PLAN", "p.toml")
    base = {
        "PATH": "/bin",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "secret",
        "AIRFLOW_CONN_SHOP": "secret",
        "_AIRFLOW__X": "secret",
    }
    assert environment(base) == {
        "PATH": "/bin",
        "BEFOREHAND_STATE": str(tmp_path / "relative"),
        "BEFOREHAND_PLAN": str(tmp_path / "p.toml"),
    }


def test_the_launcher_is_found_beside_the_room_or_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BEFOREHAND_ROOT", raising=False)
    assert root() == Path(__file__).resolve().parents[2]
    assert launcher().is_file()
    monkeypatch.setenv("BEFOREHAND_ROOT", "/opt/shop")
    assert launcher() == Path("/opt/shop/beforehand")


def test_the_form_is_plain_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(FORM), type=dict[str, Any])["data"]["default"] == "journey"
