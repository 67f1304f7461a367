"""The DAG file that Airflow parses: every DAG, made from the plan."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Airflow puts the folder of the DAGs on the path, not the checkout that it is part of.
CHECKOUT = str(Path(__file__).resolve().parent.parent)
if CHECKOUT not in sys.path:
    sys.path.append(CHECKOUT)

from dags.factory import make_dags  # noqa: E402 - needs the path
from dags.form import defaults_from  # noqa: E402
from schemas.plan import load_plan  # noqa: E402

globals().update(make_dags(load_plan(), defaults_from(os.environ)))  # Airflow finds DAGs among a module's names
