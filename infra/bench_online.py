"""`./beforehand bench online`: what the room's own bench needs of others, then the bench itself.

With `--rivals`, the environment of `benchmarks/rivals`. Where no release was ever built, one without training: its
decoder has the shapes of a trained one, and so its cost.
"""

from __future__ import annotations

import os
import subprocess
import sys

from infra import environments
from infra.errors import LauncherError
from infra.paths import Layout
from infra.settings import verb_environment

RIVALS_PYTHON = "BEFOREHAND_RIVALS_PYTHON"
RIVALS_GB = 6.0
UNTRAINED = "bench-untrained"


def main(args: list[str]) -> int:
    """Hand over to the room's bench; this process becomes it."""
    layout = Layout.current()
    python = environments.ensure(layout, "online")
    environ = verb_environment(layout, "online")
    asked_for_help = "-h" in args or "--help" in args
    if "--rivals" in args and not asked_for_help:
        folder = layout.root / "benchmarks" / "rivals"
        environ[RIVALS_PYTHON] = str(environments.project_python(layout, "rivals", folder, RIVALS_GB))
    if not (asked_for_help or _names_release(args) or _has_release(layout)):
        _make_untrained(layout)
    command = [str(python), "-P", "-m", "online", "bench", "online", *args]
    sys.stdout.flush()
    os.execve(command[0], command, environ)  # noqa: S606 - the room takes this process over


def _names_release(args: list[str]) -> bool:
    return any(arg == "--release" or arg.startswith("--release=") for arg in args)


def _has_release(layout: Layout) -> bool:
    """A built one, or one without training that is as new as the decoder's code and the plan."""
    if next((layout.state / "releases").glob("*/manifest.json"), None) is not None:
        return True
    made = [path.stat().st_mtime for path in (layout.state / UNTRAINED).glob("*/manifest.json")]
    sources = [
        *(layout.root / "offline" / "model").glob("*.py"),
        layout.root / "offline" / "export.py",
        layout.root / "plan.toml",
    ]
    return bool(made) and max(made) >= max(path.stat().st_mtime for path in sources)


def _make_untrained(layout: Layout) -> None:
    python = environments.ensure(layout, "offline")
    command = [str(python), "-P", "-m", "offline", "fixture", "--untrained", str(layout.state / UNTRAINED)]
    done = subprocess.run(command, env=verb_environment(layout, "offline"), stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise LauncherError("no release could be made to measure with", "build one, or name it with --release")
