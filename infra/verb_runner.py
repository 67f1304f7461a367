"""Run a verb as a child and read its result: the demo and the chain tests use the same commands a person types."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.errors import LauncherError
from infra.paths import ROOT

LAUNCHER = ROOT / "beforehand"


def command(words: Sequence[str | Path]) -> list[str]:
    """The launcher's command line for a verb."""
    return [str(LAUNCHER), *(str(word) for word in words)]


def run_verb(*words: str | Path, state: Path | None = None, quiet: bool = False) -> dict[str, Any]:
    """Run ``./beforehand WORDS --json`` to its end and return its JSON object, the last line of its stdout.

    What it says to people (stderr) passes through, unless ``quiet``.

    Raises:
        LauncherError: it failed or printed no object; with its own words when there are any.
    """
    environ = dict(os.environ) | ({"BEFOREHAND_STATE": str(state)} if state else {})
    done = subprocess.run(
        [*command(words), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if quiet else None,
        env=environ,
        check=False,
    )
    result = _last_object(done.stdout)
    if done.returncode == 0 and result is not None:
        return result
    said = (result or {}).get("error") or (done.stderr or b"").decode(errors="replace").strip()[-500:] or "see above"
    raise LauncherError(
        f"`./beforehand {' '.join(str(w) for w in words)}` ended with exit code {done.returncode}: {said}",
        str((result or {}).get("mend") or "run that command by itself to see all of what it says"),
    )


def _last_object(stdout: bytes) -> dict[str, Any] | None:
    for line in reversed(stdout.decode(errors="replace").splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                return None
    return None
