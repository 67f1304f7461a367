"""One Python environment per tier, made from the one lock.

`ensure(tier)` returns the environment's interpreter and does nothing when the environment was made from this lock.
The tiers need their own environments because PyFlink pins an old Beam, and with it old numpy, pyarrow and redis.
Index and proxy settings are the user's own: none is set here.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from infra.errors import LauncherError
from infra.paths import Layout
from infra.stamps import digest, locked, read_stamp, say, write_stamp

UV_VERSION = "0.13.9"
UV_OLDEST = (0, 9)

# The extras of each tier's environment, and the disk it takes at its first making.
EXTRAS: dict[str, tuple[str, ...]] = {
    "offline": ("offline",),
    "streaming": ("streaming",),
    "nearline": ("nearline",),
    "edge": ("edge",),
    "online": ("online",),
    "dags": ("dags",),
    # The type checker resolves the light rooms here; the heavy ones are checked against their own environments.
    "dev": ("dev", "online", "nearline", "edge"),
}
SIZE_GB = {
    "offline": 6.5, "streaming": 1.2, "nearline": 0.4, "edge": 0.3, "online": 0.4, "dags": 0.6, "dev": 0.6,
}  # fmt: skip
TIERS = tuple(EXTRAS)


def stamp(layout: Layout, tier: str) -> str:
    """What the environment depends on: the lock, the dependency tables, the tier and Python's minor version.

    Not its patch version: a cron job's interpreter and a shell's would take turns at building the environment anew.
    """
    with (layout.root / "pyproject.toml").open("rb") as handle:
        project = tomllib.load(handle)
    tables = {
        "dependencies": project["project"].get("dependencies"),
        "extras": project["project"].get("optional-dependencies"),
        "groups": project.get("dependency-groups"),
        "uv": project.get("tool", {}).get("uv"),
    }
    lock = (layout.root / "uv.lock").read_bytes()
    minor = ".".join(platform.python_version_tuple()[:2])
    return digest([lock, json.dumps(tables, sort_keys=True), tier, *EXTRAS[tier], minor])


def state(layout: Layout, tier: str) -> str:
    """`present`, `out of date` or `absent`; looks, and changes nothing."""
    if not layout.env_python(tier).exists():
        return "absent"
    wanted = f"{stamp(layout, tier)} {layout.envs / tier}"
    return "present" if read_stamp(_stamp_path(layout, tier)) == wanted else "out of date"


def ensure(layout: Layout, tier: str) -> Path:
    """The tier's interpreter, from an environment that matches the lock."""
    if tier not in EXTRAS:
        raise LauncherError(f"no tier is called {tier!r}", f"choose from: {', '.join(TIERS)}")
    if state(layout, tier) != "present":
        with locked(layout.made / "locks" / f"env-{tier}", f"setting up the {tier} environment"):
            # Another launcher may have finished the work while this one waited.
            if state(layout, tier) != "present":
                _sync(layout, tier)
    return layout.env_python(tier)


def project_python(layout: Layout, name: str, folder: Path, size_gb: float) -> Path:
    """The interpreter of an environment for a project that has a lock of its own, made anew when that changed."""
    python = layout.env_python(name)
    files = [(folder / part).read_bytes() for part in ("pyproject.toml", "uv.lock")]
    minor = ".".join(platform.python_version_tuple()[:2])
    wanted = f"{digest([*files, minor])} {layout.envs / name}"
    with locked(layout.made / "locks" / f"env-{name}", f"setting up the {name} environment"):
        if not python.exists() or read_stamp(_stamp_path(layout, name)) != wanted:
            say(f"setting up the {name} environment (about {size_gb:g} GB on disk)")
            _stamp_path(layout, name).unlink(missing_ok=True)
            environ = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
            environ["UV_PROJECT_ENVIRONMENT"] = str(layout.envs / name)
            environ.setdefault("UV_HTTP_TIMEOUT", "300")
            command = [str(find_uv(layout)), "sync", "--frozen", "--project", str(folder), "--python", base_python()]
            _run_uv(command, environ, layout, name)
            write_stamp(_stamp_path(layout, name), wanted)
    return python


def _stamp_path(layout: Layout, tier: str) -> Path:
    return layout.envs / tier / ".beforehand-stamp"


def _sync(layout: Layout, tier: str) -> None:
    wanted = stamp(layout, tier)
    first = not layout.env_python(tier).exists()
    if first:
        _require_disk(layout, tier)
    note = f"first time: about {SIZE_GB[tier]:g} GB on disk" if first else "its lock changed"
    say(f"setting up the {tier} environment ({note})")
    if _moved(layout, tier):
        shutil.rmtree(layout.envs / tier)
    _stamp_path(layout, tier).unlink(missing_ok=True)
    command = [str(find_uv(layout)), "sync", "--frozen", "--python", base_python()]
    for extra in EXTRAS[tier]:
        command += ["--extra", extra]
    environ = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    environ["UV_PROJECT_ENVIRONMENT"] = str(layout.envs / tier)
    # A CUDA wheel of 800 MB outlasts uv's 30 s on a slow line.
    environ.setdefault("UV_HTTP_TIMEOUT", "300")
    _run_uv(command, environ, layout, tier)
    write_stamp(_stamp_path(layout, tier), f"{wanted} {layout.envs / tier}")


def _moved(layout: Layout, tier: str) -> bool:
    """The scripts in an environment's bin name its folder: it cannot follow a checkout that was moved.

    A link to it is no move: a second worktree may share what the first has built."""
    made_at = (read_stamp(_stamp_path(layout, tier)) or "").partition(" ")[2]
    return bool(made_at) and Path(made_at).resolve() != (layout.envs / tier).resolve()


def _run_uv(command: list[str], environ: dict[str, str], layout: Layout, tier: str) -> None:
    """uv's progress bars on a terminal; elsewhere silence unless it fails."""
    on_terminal = sys.stderr.isatty()
    done = subprocess.run(
        command if on_terminal else [*command, "--quiet"],
        cwd=layout.root,
        env=environ,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=None if on_terminal else subprocess.PIPE,
        text=True,
    )
    if done.returncode == 0:
        return
    said = (done.stderr or "").strip()
    raise LauncherError(
        f"uv could not make the {tier} environment (exit {done.returncode})" + (f":\n{said}" if said else ""),
        f"run `./beforehand env {tier}` again (what was fetched is kept); behind a mirror or proxy set "
        "UV_DEFAULT_INDEX, SSL_CERT_FILE or HTTPS_PROXY as for any uv project",
    )


def _require_disk(layout: Layout, tier: str) -> None:
    free_gb = shutil.disk_usage(layout.root).free / 1e9
    if free_gb < SIZE_GB[tier] + 0.5:
        raise LauncherError(
            f"the {tier} environment needs about {SIZE_GB[tier]:g} GB and {free_gb:.1f} GB are free at {layout.root}",
            "free some disk, for instance with `uv cache prune`, and run the same command again",
        )


def base_python() -> str:
    """The interpreter below any virtual environment: ours must not depend on somebody else's."""
    return getattr(sys, "_base_executable", None) or sys.executable


def find_uv(layout: Layout) -> Path:
    """uv from PATH when it is new enough to read the lock, else our own, installed once."""
    on_path = shutil.which("uv")
    if on_path and _uv_version(on_path) >= UV_OLDEST:
        return Path(on_path)
    own = layout.tools / "uv" / "bin" / "uv"
    with locked(layout.made / "locks" / "uv", "installing uv"):
        if not own.exists() or _uv_version(str(own)) < UV_OLDEST:
            _install_uv(layout.tools / "uv")
    return own


def _uv_version(program: str) -> tuple[int, ...]:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    return tuple(int(part) for part in found.groups()) if found else ()


def _install_uv(folder: Path) -> None:
    say(f"installing uv {UV_VERSION} into {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    if not _make_venv(folder):
        _install_venv_module()
        if not _make_venv(folder):
            raise LauncherError(
                f"{base_python()} -m venv {folder} fails", "install uv yourself: https://docs.astral.sh/uv/"
            )
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"uv=={UV_VERSION}"]
    done = subprocess.run(pip, check=False, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    if done.returncode != 0:
        raise LauncherError(f"pip could not install uv=={UV_VERSION}", "install uv yourself and put it on PATH")


def _make_venv(folder: Path) -> bool:
    done = subprocess.run(
        [base_python(), "-m", "venv", str(folder)], check=False, capture_output=True, stdin=subprocess.DEVNULL
    )
    return done.returncode == 0


def _install_venv_module() -> None:
    """Debian ships Python without ensurepip."""
    from infra.system import apt_install  # noqa: PLC0415 - only this path needs it

    apt_install(["python3-venv"], why="Python's venv module")
