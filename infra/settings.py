"""The environment variables that a verb finds.

What the user set is never overridden.
What a launcher set is remembered in `BEFOREHAND_DERIVED`, so that a launcher started by a verb (with another state
folder, say) does not take the outer one's addresses for the user's choice.
"""

from __future__ import annotations

import json
import os

from infra.paths import Layout
from infra.stack import Stack
from infra.system import find_java

DERIVED = "BEFOREHAND_DERIVED"


def verb_environment(layout: Layout, tier: str) -> dict[str, str]:
    """The whole environment for a process of `tier`, the user's own variables included."""
    environ = without_derived(dict(os.environ))
    derived = {"BEFOREHAND_STATE": str(layout.state), **addresses(layout)}
    if tier == "dags":
        derived |= airflow_defaults(layout)
    derived = {name: value for name, value in derived.items() if name not in environ}
    environ.update(derived)
    environ[DERIVED] = json.dumps(derived)
    environ["BEFOREHAND_ROOT"] = str(layout.root)
    python_bin = str(layout.env_python(tier).parent)
    # PyFlink and Airflow start `python` and `airflow` by name.
    environ["PATH"] = os.pathsep.join([python_bin, environ.get("PATH", os.defpath)])
    environ["VIRTUAL_ENV"] = str(layout.envs / tier)
    if tier == "streaming":
        _add_java(environ)
    return environ


def airflow_defaults(layout: Layout) -> dict[str, str]:
    """Left to itself Airflow writes to the home folder, loads its examples and listens on every address."""
    return {
        "AIRFLOW_HOME": str(layout.state / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(layout.root / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__API__HOST": "127.0.0.1",
    }


def without_derived(environ: dict[str, str]) -> dict[str, str]:
    """The variables less those that an outer launcher set and nobody changed since."""
    derived = json.loads(environ.pop(DERIVED, "{}"))
    return {name: value for name, value in environ.items() if derived.get(name) != value}


def addresses(layout: Layout) -> dict[str, str]:
    """Where the jars are and, for each service that runs, where it answers."""
    return {"BEFOREHAND_JARS": str(layout.jars / "flink"), **Stack(layout.state).environment()}


def _add_java(environ: dict[str, str]) -> None:
    found = find_java()
    if found and "JAVA_HOME" not in environ:
        environ["JAVA_HOME"] = str(found.home)
