"""What happens when a run is later than the plan allows: Airflow's triggerer calls ``late``."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import urllib.error
import urllib.request
from typing import Any

URL_VARIABLE = "BEFOREHAND_ALERT_URL"
"""Where alerts are posted as JSON (Alertmanager's webhook form or a chat's); unset: they are logged only."""
TIMEOUT_S = 10.0
log = logging.getLogger(__name__)


async def late(dag: str, deadline_s: float, context: dict[str, Any] | None = None) -> None:
    """Log that a run of ``dag`` has not ended in time, and post it where ``$BEFOREHAND_ALERT_URL`` says."""
    alert = {
        "alert": "DagLate",
        "dag": dag,
        "deadline_s": deadline_s,
        "run": ((context or {}).get("dag_run") or {}).get("dag_run_id"),
        "runbook": "docs/runbook.md#daglate",
    }
    log.error("%s has not ended within %g s: %s", dag, deadline_s, json.dumps(alert))
    if url := os.environ.get(URL_VARIABLE):
        await asyncio.to_thread(_post, url, json.dumps(alert).encode())


def _post(url: str, body: bytes) -> None:
    if not url.startswith(("https://", "http://")):
        log.error("%s is no http address: the alert was not sent", URL_VARIABLE)
        return
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - checked above
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()  # noqa: S310
    except (urllib.error.URLError, TimeoutError) as error:
        log.error("the alert could not be sent: %s", error)
