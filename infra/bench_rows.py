"""`./beforehand bench rows`: what a new event of a long window costs, by kept rows and by encoding the window whole.

The offline tier makes a release without training that has a long window; the near-line tier measures with it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from infra import environments
from infra.errors import LauncherError
from infra.paths import Layout
from infra.settings import verb_environment

WINDOW = 1000


def main(args: list[str]) -> int:
    """Make the release, then hand over to the near-line room's verb."""
    layout = Layout.current()
    python = str(environments.ensure(layout, "nearline"))
    command = [python, "-P", "-m", "nearline", "rows", *args]
    if "-h" in args or "--help" in args:
        return subprocess.run(command, check=False).returncode
    with tempfile.TemporaryDirectory() as folder:
        release = _release(layout, Path(folder))
        environ = verb_environment(layout, "nearline")
        environ["BEFOREHAND_VERIFY_KEY"] = str(Path(folder) / "keys" / "release.pub")
        sys.stdout.flush()
        return subprocess.run([*command, "--release", str(release)], env=environ, check=False).returncode


def _release(layout: Layout, folder: Path) -> Path:
    """A release of the long window whose graphs have the plan's shapes otherwise."""
    plan = re.sub(r"(?m)^window = \d+", f"window = {WINDOW}", (layout.root / "plan.toml").read_text("utf-8"), count=1)
    (folder / "plan.toml").write_text(plan, "utf-8")
    environ = verb_environment(layout, "offline")
    environ |= {"BEFOREHAND_PLAN": str(folder / "plan.toml"), "BEFOREHAND_STATE": str(folder)}
    environ.pop("BEFOREHAND_SIGNING_KEY", None)
    python = str(environments.ensure(layout, "offline"))
    command = [python, "-P", "-m", "offline", "fixture", "--untrained", str(folder / "releases")]
    done = subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=False)
    found = next((folder / "releases").glob("*/manifest.json"), None)
    if done.returncode or found is None:
        raise LauncherError("no release could be made to measure with", "see what it said above")
    return found.parent
