"""A throw-away Airflow: its own folder and SQLite file, no examples, no telemetry, nothing that listens.

Airflow reads its settings when it is first imported, so ``enter`` comes before that. Trying a DAG emits real asset
events: in a real Airflow these would start whatever waits for them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from schemas.locations import state_dir

DAGS_FOLDER = Path(__file__).resolve().parent


def enter(home: Path) -> None:
    """Make ``home`` this process's Airflow, and forget the settings of any other."""
    for name in [name for name in os.environ if name.startswith("AIRFLOW__")]:
        del os.environ[name]
    os.environ.update(settings(home))


def settings(home: Path) -> dict[str, str]:
    """The environment variables of an Airflow that lives in ``home`` alone."""
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS_FOLDER),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        # What the stages say, and warnings; not Airflow's ten lines about each task.
        "AIRFLOW__LOGGING__NAMESPACE_LEVELS": (
            "airflow=WARNING task=WARNING py.warnings=ERROR airflow.task.operators=INFO"
        ),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def new_home() -> Path:
    """An empty folder under ``$BEFOREHAND_STATE/run/airflow``."""
    parent = (state_dir() / "run" / "airflow").absolute()
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="test-", dir=parent))
