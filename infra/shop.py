"""`./beforehand demo --shop`: a shop of the demo's catalogue, whose taps become prompts in the browser.

The page is `edge/shop`; the look-up service serves it, the bundle for devices and the answers, all on the loopback.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

from infra import processes
from infra.errors import LauncherError
from infra.explore import answers
from infra.paths import Layout
from infra.stack import Stack
from infra.verb_runner import command, run_verb

NUM_USERS = 12
INSTALL_S, BUILD_S, START_S = 600, 120, 60


def open_shop(layout: Layout, stack: Stack, release: str, targets: Path) -> str:
    """Make the bundle and the page, start the service with them, and return the page's address.

    Args:
        layout: of this checkout and its state.
        stack: with Redis up; everything that runs stays up.
        release: the id of the one that serves.
        targets: JSON lines with a `user_id` each: the first of them can be chosen on the page.

    Raises:
        LauncherError: Node is missing, or a step failed.
    """
    bundle = run_verb("edge", "bundle", "--release", release)
    run_verb("edge", "rollout", "--bundle", bundle["id"])
    site = build_site(layout, {"keys": [bundle["public_key"]], "users": first_users(targets)})
    processes.stop(layout.run / "online")  # it runs without the page
    serve = processes.start("online", command(["serve", "--shop", site]), layout.run / "online")
    processes.wait_until([serve], lambda: answers(stack), timeout_s=START_S)
    return f"{stack.environment()['BEFOREHAND_ONLINE']}/shop/"


def build_site(layout: Layout, config: dict[str, Any]) -> Path:
    """The folder that `serve --shop` takes, made anew in the state folder."""
    node = _tool("node")
    install_packages(layout.root / "edge" / "sdk-js")
    site = layout.state / "shop"
    shutil.rmtree(site, ignore_errors=True)
    _run([node, layout.root / "edge" / "shop" / "build.mjs", site], layout.root, BUILD_S)
    (site / "config.json").write_text(json.dumps(config) + "\n")
    return site


def install_packages(folder: Path) -> None:
    """`npm ci` where what is installed is older than the lock, or absent."""
    lock, installed = folder / "package-lock.json", folder / "node_modules" / ".package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
        return
    _run([_tool("npm"), "ci"], folder, INSTALL_S)


def first_users(targets: Path) -> list[str]:
    """The first users of the file, each once, in its order."""
    with targets.open() as lines:
        named = (json.loads(line)["user_id"] for line in lines if line.strip())
        return list(islice(dict.fromkeys(islice(named, NUM_USERS * 100)), NUM_USERS))


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise LauncherError(f"the shop's page needs {name}, which is not here", "install Node.js 20 or newer")
    return found


def _run(words: list[str | Path], folder: Path, limit_s: float) -> None:
    named = " ".join(str(word) for word in words)
    try:
        done = subprocess.run(
            [str(word) for word in words], cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise LauncherError(f"`{named}` took longer than {limit_s:g} s", f"run it in {folder} to see why") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-1000:]
        raise LauncherError(f"`{named}` failed in {folder}: {said}", "run it there by itself to see all it says")
