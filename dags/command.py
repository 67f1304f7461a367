"""The command of a stage: an argument list and an environment, never a line for a shell. Pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dags.chain import DATA
from schemas.errors import DataError
from schemas.locations import plan_path, state_dir

FILES_OF_SOURCE = {"completejourney": (), "online-retail": ("file",), "files": ("catalogue", "events")}
"""The parameters that each source cannot do without."""


def root() -> Path:
    """The checkout: ``$BEFOREHAND_ROOT``, or the folder above this one."""
    return Path(os.environ.get("BEFOREHAND_ROOT") or Path(__file__).resolve().parent.parent)


def launcher() -> Path:
    """``./beforehand``, which starts every room in its own environment."""
    return root() / "beforehand"


def arguments(stage: str, params: Mapping[str, Any]) -> list[str]:
    """What follows ``./beforehand`` for ``stage``.

    Args:
        stage: ``data``, or a stage of ``./beforehand build``.
        params: values by the names of ``dags.form.FORM``.

    Raises:
        DataError: the source lacks a file it needs.
    """
    if stage == DATA:
        return ["data", "--name", params["data"], *_source(params), "--json"]
    overrides = [word for override in params["set"] or [] for word in ("--set", override)]
    force = ["--force"] if params["force"] else []
    return ["build", stage, "--data", params["data"], *overrides, *force, "--json"]


def _source(params: Mapping[str, Any]) -> list[str]:
    source = params["source"]
    for name in FILES_OF_SOURCE[source]:
        if not params[name]:
            raise DataError(
                f"the source {source} needs a file", where=f"param {name}", value=params[name], mend="Give its path."
            )
    words = [] if source == "files" else ["--source", source]
    for name in (*FILES_OF_SOURCE[source], *(["profiles"] if source == "files" and params["profiles"] else [])):
        words += [f"--{name}", params[name]]
    return [*words, "--small"] if params["small"] else words


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """``base`` with the state folder and plan of this DAG, and without Airflow's own settings: they hold secrets."""
    kept = {name: value for name, value in base.items() if not name.lstrip("_").startswith("AIRFLOW")}
    return kept | {"BEFOREHAND_STATE": str(state_dir().absolute()), "BEFOREHAND_PLAN": str(plan_path().absolute())}


def by_hand(words: list[str]) -> str:
    """The command as a person types it."""
    return shlex.join(["./beforehand", *(word for word in words if word != "--json")])
