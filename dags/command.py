"""The command of a step: an argument list and an environment, never a line for a shell. Pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schemas.errors import DataError
from schemas.locations import plan_path, state_dir

FILES_OF_SOURCE = {"completejourney": (), "online-retail": ("file",), "files": ("catalogue", "events")}
"""The parameters that each source cannot do without."""
CARRIED = ("data", "set", "force", "release", "bundle", "share")
"""Parameters that one DAG hands to the next with the news of its asset."""
DAY = "{day}"
Params = Mapping[str, Any]


def root() -> Path:
    """The checkout: ``$BEFOREHAND_ROOT``, or the folder above this one."""
    return Path(os.environ.get("BEFOREHAND_ROOT") or Path(__file__).resolve().parent.parent)


def launcher() -> Path:
    """``./beforehand``, which starts every room in its own environment."""
    return root() / "beforehand"


def arguments(step: str, params: Params) -> list[str]:
    """What follows ``./beforehand`` for ``step``.

    Args:
        step: ``data``, a stage of ``./beforehand build``, or one of the steps after a build.
        params: values by the names of ``dags.form.FORM``.

    Raises:
        DataError: the source lacks a file it needs, or it is not said which release.
    """
    words = COMMANDS[step](params) if step in COMMANDS else _build(step, params)
    return [*words, "--json"]


def for_day(params: Params, day: str) -> dict[str, Any]:
    """The parameters of one day of a range: its own data set, and its own files where a path says ``{day}``."""
    paths = {
        name: params[name].replace(DAY, day) for name in ("file", "catalogue", "events", "profiles") if params[name]
    }
    return {**params, **paths, "data": f"{params['data']}-{day}", "force": False}


def news(step: str, params: Params, said: Mapping[str, Any]) -> dict[str, Any]:
    """What goes with the event of a new asset, for the DAGs that wait for it."""
    made = {"publish": {"release": said.get("release")}, "bundle": {"bundle": said.get("id")}}.get(step, {})
    carried = {name: params[name] for name in CARRIED if params.get(name) is not None}
    return carried | {name: value for name, value in made.items() if value is not None}


def _build(stage: str, params: Params) -> list[str]:
    overrides = [word for override in params["set"] or [] for word in ("--set", override)]
    force = ["--force"] if params.get("force") else []
    return ["build", stage, "--data", params["data"], *overrides, *force]


def _data(params: Params) -> list[str]:
    source = params["source"]
    for name in FILES_OF_SOURCE[source]:
        if not params[name]:
            raise DataError(
                f"the source {source} needs a file", where=f"param {name}", value=params[name], mend="Give its path."
            )
    words = [] if source == "files" else ["--source", source]
    for name in (*FILES_OF_SOURCE[source], *(["profiles"] if source == "files" and params["profiles"] else [])):
        words += [f"--{name}", params[name]]
    return ["data", "--name", params["data"], *words, *(["--small"] if params["small"] else [])]


def _named(params: Params, name: str, verb: str) -> str:
    """A release or a bundle: named in the form, or by the event that started the run."""
    if not params.get(name):
        raise DataError(f"which {name}?", where=f"param {name}", mend=f"Name one; `./beforehand {verb}` says its id.")
    return str(params[name])


def _release(params: Params) -> str:
    return _named(params, "release", "release list")


def _canary(params: Params) -> list[str]:
    return ["quality", "canary", "--release", _release(params), "--share", f"{params['canary_share']:g}"]


def _watch_canary(params: Params) -> list[str]:
    return ["quality", "watch", "--release", _release(params), "--canary", "--for", params["canary_for"]]


def _undo(params: Params) -> list[str]:
    return ["quality", "undo", "--release", _release(params), "--why", "the DAG promote: the watch failed"]


def _rollout(params: Params) -> list[str]:
    share = ["--share", f"{params['share']:g}"] if params.get("share") is not None else []
    return ["edge", "rollout", "--bundle", _named(params, "bundle", "edge bundle"), *share]


def _drift(params: Params) -> list[str]:
    return ["quality", "drift", "--unknown", f"{params['unknown']:g}", "--rest-h", f"{params['rest_h']:g}"]


COMMANDS: dict[str, Callable[[Params], list[str]]] = {
    "data": _data,
    "bundle": lambda params: ["edge", "bundle", "--release", _release(params)],
    "verify": lambda params: ["release", "verify", _release(params)],
    "gate": lambda params: ["quality", "gate", "--release", _release(params)],
    "canary": _canary,
    "watch_canary": _watch_canary,
    "promote": lambda params: [
        "release",
        "promote",
        _release(params),
        "--why",
        "the DAG promote: gate and canary passed",
    ],
    "watch": lambda params: ["quality", "watch", "--release", _release(params), "--for", params["watch_for"]],
    "undo": _undo,
    "rollout": _rollout,
    "freshness": lambda _params: ["quality", "freshness"],
    "parity": lambda params: ["parity", "--users", str(params["users"])],
    "dead_letters": lambda _params: ["quality", "dead-letters"],
    "drift": _drift,
}
"""Steps that are no stage of ``./beforehand build``."""


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """``base`` with the state folder and plan of this DAG, and without Airflow's own settings: they hold secrets."""
    kept = {name: value for name, value in base.items() if not name.lstrip("_").startswith("AIRFLOW")}
    return kept | {"BEFOREHAND_STATE": str(state_dir().absolute()), "BEFOREHAND_PLAN": str(plan_path().absolute())}


def by_hand(words: list[str]) -> str:
    """The command as a person types it."""
    return shlex.join(["./beforehand", *(word for word in words if word != "--json")])
