"""The parameters of a run: one table for Airflow's form, for ``dags test`` and for the commands. Pure.

The patterns are JSON Schema's, checked by Airflow's form, its API and each task.
``(?!\\n)`` is there because Python's ``$`` also matches before a final line end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from schemas.errors import PlanError

DEFAULTS_VARIABLE = "BEFOREHAND_DAG_PARAMS"
_PATH = {"type": ["null", "string"], "pattern": r"^/[^\x00-\x1f]*(?!\n)$"}
_ID = {"type": ["null", "string"], "pattern": r"^[0-9a-f]{16}(?!\n)$"}
_TIME = {"type": "string", "pattern": r"^\d+[smh](?!\n)$"}
_SHARE = {"type": ["null", "number"], "minimum": 0, "maximum": 1}


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
    "release": Field(None, "Id of the release; a run that an asset started takes the new one.", _ID),
    "bundle": Field(None, "Id of the devices' bundle; a run that an asset started takes the new one.", _ID),
    "share": Field(None, "Of devices that get the bundle; nothing takes the plan's share.", _SHARE),
    "canary_share": Field(
        0.05, "Of the users that try the release before everybody gets it.", {**_SHARE, "type": "number"}
    ),
    "canary_for": Field("5m", "How long it is tried.", _TIME),
    "watch_for": Field("10m", "How long the service is watched after the promotion.", _TIME),
    "users": Field(
        50, "How many users are compared in all tiers.", {"type": "integer", "minimum": 1, "maximum": 10000}
    ),
    "unknown": Field(
        2.0,
        "Drift: on average more than so many events of a user's window are of items that the release does not know.",
        {"type": "number", "minimum": 0},
    ),
    "rest_h": Field(
        20.0, "A release younger than so many hours is not built anew for drift.", {"type": "number", "minimum": 0}
    ),
    "begin": Field(
        None,
        "First moment of the range, with its offset, as in 2026-03-01T00:00:00Z.",
        {"type": ["null", "string"], "format": "date-time"},
    ),
    "end": Field(
        None,
        "End of the range (not part of it), with its offset.",
        {"type": ["null", "string"], "format": "date-time"},
    ),
    "most": Field(
        1,
        "Days to build at most, the newest first. Each build is a snapshot: older days are rarely needed.",
        {"type": "integer", "minimum": 1, "maximum": 31},
    ),
}


def form(defaults: Mapping[str, Any], names: Sequence[str] = tuple(FORM)) -> dict[str, Field]:
    """The fields ``names`` of the form with other ``defaults``: they are what scheduled runs use.

    Raises:
        PlanError: a default's name that is no field.
    """
    if unknown := [name for name in defaults if name not in FORM]:
        raise PlanError(
            "no such parameter of the DAG", where=DEFAULTS_VARIABLE, value=unknown[0], mend=f"Known: {', '.join(FORM)}."
        )
    return {name: msgspec.structs.replace(FORM[name], default=defaults.get(name, FORM[name].default)) for name in names}


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
