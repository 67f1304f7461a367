"""The parameters of a run: one table for Airflow's form, for ``dags test`` and for the commands. Pure.

The patterns are JSON Schema's, checked by Airflow's form, its API and each task.
``(?!\\n)`` is there because Python's ``$`` also matches before a final line end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from schemas.errors import PlanError

DEFAULTS_VARIABLE = "BEFOREHAND_DAG_PARAMS"
_PATH = {"type": ["null", "string"], "pattern": r"^/[^\x00-\x1f]*(?!\n)$"}


class Field(msgspec.Struct, frozen=True):
    """One field of the form."""

    default: Any
    about: str
    schema: dict[str, Any]


FORM: dict[str, Field] = {
    "data": Field(
        "journey",
        "Name of the data set and of its working folder.",
        {"type": "string", "pattern": r"^[a-z0-9][a-z0-9_-]{0,63}(?!\n)$"},
    ),
    "source": Field(
        "completejourney",
        "Where the data come from. `files` needs catalogue and events, `online-retail` needs file.",
        {"type": "string", "enum": ["completejourney", "online-retail", "files"]},
    ),
    "small": Field(False, "Take a small part of the data: minutes instead of hours.", {"type": "boolean"}),
    "file": Field(None, "Absolute path of Online Retail's file.", _PATH),
    "catalogue": Field(None, "Absolute path of the catalogue: CSV or Parquet.", _PATH),
    "events": Field(None, "Absolute path of the events: CSV or Parquet.", _PATH),
    "profiles": Field(None, "Absolute path of the profiles, if there are any.", _PATH),
    "set": Field(
        [],
        "Changes to the plan for this run, as in model.epochs=2; in the form one a line.",
        {
            "type": ["null", "array"],
            "items": {"type": "string", "pattern": r"^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+=[^\x00-\x1f]+(?!\n)$"},
        },
    ),
    "force": Field(False, "Do every stage again, also where nothing changed.", {"type": "boolean"}),
}


def form(defaults: Mapping[str, Any]) -> dict[str, Field]:
    """The form with other ``defaults``: they are what scheduled runs use.

    Raises:
        PlanError: a name that is no field.
    """
    if unknown := [name for name in defaults if name not in FORM]:
        raise PlanError(
            "no such parameter of the DAG", where=DEFAULTS_VARIABLE, value=unknown[0], mend=f"Known: {', '.join(FORM)}."
        )
    return {name: msgspec.structs.replace(f, default=defaults.get(name, f.default)) for name, f in FORM.items()}


def defaults_from(environ: Mapping[str, str]) -> dict[str, Any]:
    """The JSON object in ``$BEFOREHAND_DAG_PARAMS``, empty when it is not set.

    Raises:
        PlanError: it is no JSON object.
    """
    text = environ.get(DEFAULTS_VARIABLE) or "{}"
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise PlanError(
            f"not a JSON object: {error}", where=DEFAULTS_VARIABLE, value=text, mend='Write {"data": "shop"}.'
        ) from None
