"""What others take for the same, measured by programs of their own (``benchmarks/rivals``) in their own environment."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from schemas.cli import step
from schemas.locations import ROOT
from schemas.release import Model

PYTHON = "BEFOREHAND_RIVALS_PYTHON"
"""Set by the launcher for ``bench online --rivals``."""
PROGRAMS = ROOT / "benchmarks" / "rivals"
GENERATE_REQUESTS, LOOKUPS, USERS = 100, 2_000, 500
LIMIT_S = 1_200.0


def compare(release: Path, model: Model, k: int, redis_url: str, states: dict[str, bytes]) -> dict[str, Any]:
    """Figures of the rivals; each is None where it can't be had, and ``rivals`` says why, or which versions ran."""
    told: dict[str, Any] = {}
    generate = {"release": str(release), "levels": model.levels, "codes": model.codes, "k": k}
    with tempfile.TemporaryDirectory(prefix="beforehand-states-") as folder:
        for user_id, raw in list(states.items())[:USERS]:
            (Path(folder) / user_id).write_bytes(raw)
        hugging = _run("hf_generate", generate | {"requests": GENERATE_REQUESTS}, told)
        feast = _run("feast_lookup", {"redis": redis_url, "states": folder, "requests": LOOKUPS}, told)
    return {
        "hf_generate_cpu_ms": hugging.get("cpu_ms"),
        "feast_lookup_cpu_us": feast.get("server_cpu_us"),
        "feast_sdk_lookup_cpu_us": feast.get("sdk_cpu_us"),
        "rivals": told,
    }


def _run(program: str, job: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    python = os.environ.get(PYTHON)
    if not python:
        told[program] = "not measured: its environment is made by `./beforehand bench online --rivals`"
        return {}
    with step(f"rival {program}") as made:
        command: Sequence[str] = [python, str(PROGRAMS / f"{program}.py")]
        try:
            done = subprocess.run(
                command, input=msgspec.json.encode(job), capture_output=True, timeout=LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            told[program] = f"not measured: {error}"
            made("failed")
            return {}
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it says nothing"]
            told[program] = f"not measured: {lines[-1]}"
            made("failed")
            return {}
        found: dict[str, Any] = msgspec.json.decode(done.stdout)
        told[program] = {name: value for name, value in found.items() if not name.endswith(("_us", "_ms"))}
        made(", ".join(f"{name} {value}" for name, value in told[program].items()))
        return found
