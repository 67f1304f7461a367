"""The compose file and the Dockerfiles: valid, pinned, non-root, on the loopback, and in words that the verbs know."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml

from dags.form import defaults_from, form
from infra.environments import TIERS
from infra.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "infra" / "containers"
DOCKERFILES = sorted(FOLDER.glob("Dockerfile*[!e]"))
FOLLOW = ["catalogue", "follow", "--data", "shop", "--metrics-host", "0.0.0.0", "--metrics-port", "9101"]
DOCKERFILES = [path for path in DOCKERFILES if not path.name.endswith("dockerignore")]


def compose() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())


def test_the_compose_file_is_one() -> None:
    text = (FOLDER / "compose.yaml").read_text()
    told = read(text)
    assert set(told.service_names()) == set(compose()["services"])
    told.validate()
    with pytest.raises(Exception, match="depend_on"):
        read(text.replace("depends_on:", "depend_on:", 1))


def read(text: str) -> Any:
    """As the compose specification reads it, its `<<` applied."""
    options = compose_spec.PyOptions()
    options.apply_merge = True
    return options.from_yaml(text)


def test_images_are_pinned_by_version() -> None:
    for name, service in compose()["services"].items():
        assert re.fullmatch(r"[a-z0-9-]+(/[a-z0-9-]+)?:v?\d+\.\d+[\w.-]*", service["image"]), name


def test_ports_are_open_on_the_loopback_only() -> None:
    for service in compose()["services"].values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), port


def test_our_own_services_are_locked_down_and_say_whether_they_live() -> None:
    for name in ("windows", "worker", "catalogue", "online", "airflow"):
        service = compose()["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).resolve().is_file()
        if name != "windows":
            assert service["environment"]["HEALTH_URL"].startswith("http://127.0.0.1:")


def test_secrets_are_asked_for_and_never_given() -> None:
    for line in (FOLDER / "compose.yaml").read_text().splitlines():
        if re.search(r"PASSWORD|API_KEY", line) and ":" in line and not line.strip().startswith("#"):
            assert "${" in line and ":?" in line, line


def test_what_waits_and_mounts_is_there() -> None:
    told = compose()
    for service in told["services"].values():
        assert set(service.get("depends_on", {})) <= set(told["services"])
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source in told["volumes"] or (FOLDER / source).resolve().exists(), mount


def test_the_commands_are_verbs_of_the_launcher() -> None:
    told = compose()["services"]
    for name in ("windows", "worker", "catalogue", "online"):
        assert told[name]["command"][0] in VERBS


def test_the_follower_follows_what_airflow_builds() -> None:
    airflow, follower = compose()["services"]["airflow"], compose()["services"]["catalogue"]
    built = form(defaults_from(airflow["environment"]))
    assert follower["command"][follower["command"].index("--data") + 1] == built["data"].default
    assert built["source"].default == "files"
    (mount,) = airflow["volumes"]
    for name in ("catalogue", "events"):
        assert str(built[name].default).startswith(f"{mount.split(':')[1]}/")


def test_an_insertion_may_end_what_it_began() -> None:
    assert compose()["services"]["catalogue"]["stop_grace_period"] == "120s"


@pytest.mark.parametrize(
    ("service", "module", "words"),
    [
        ("worker", "nearline", ["worker", "--metrics-host", "0.0.0.0", "--metrics-port", "9100"]),
        ("catalogue", "nearline", FOLLOW),
        ("online", "online", ["serve", "--host", "0.0.0.0", "--port", "8700"]),
    ],
)
def test_the_verbs_take_the_options(service: str, module: str, words: list[str]) -> None:
    """Each room's own parser, stopped before it runs anything."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for option in (word for word in words if word.startswith("--")):
        assert option in done.stdout
    assert compose()["services"][service]["command"] == words


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_a_dockerfile_is_pinned_non_root_and_copies_what_is_there(path: Path) -> None:
    text = path.read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    bases = [words[1] for words in lines if words[0] == "FROM"]
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-[\w.-]+", base) for base in bases), bases
    assert [words[1] for words in lines if words[0] == "USER"] == ["10001:10001"]
    assert any(words[0] == "HEALTHCHECK" for words in lines)
    assert not re.search(r"PASSWORD|API_KEY|SIGNING|index-url|https?://(?!127)", text)
    for words in lines:
        if words[0] == "COPY" and not words[1].startswith("--from"):
            for source in words[1:-1]:
                names = [source] if "$" not in source else ["online", "nearline", "edge", "offline"]
                assert all((ROOT / name).exists() for name in names), source


def test_the_environments_of_the_images_are_tiers() -> None:
    for path in DOCKERFILES:
        for words in re.findall(r"beforehand env ([\w $\"]+)", path.read_text()):
            named = [word for word in words.replace('"', "").split() if not word.startswith("$")]
            assert set(named) <= set(TIERS)


def test_what_is_sent_to_the_engine_leaves_out_state_and_keys() -> None:
    for path in DOCKERFILES:
        ignored = (FOLDER / f"{path.name}.dockerignore").read_text().splitlines()
        assert ignored[0] == "**"
        assert not any("beforehand/" in line or "keys" in line for line in ignored)
