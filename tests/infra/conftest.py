"""A checkout in miniature, with a stand-in for uv that writes down how it was called."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from infra.paths import ROOT, Layout

FAKE_UV = """#!/bin/sh
if [ "$1" = --version ]; then echo "uv 0.99.0"; exit 0; fi
echo "$@" >> "{calls}"
sleep "${{FAKE_UV_SLEEP:-0}}"
if [ -n "${{FAKE_UV_FAILS:-}}" ]; then echo "no such package" >&2; exit 1; fi
mkdir -p "$UV_PROJECT_ENVIRONMENT/bin"
ln -sf "{python}" "$UV_PROJECT_ENVIRONMENT/bin/python"
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch) -> Layout:
    """A layout of its own whose uv is a stand-in; `calls` counts that uv's syncs."""
    root = tmp_path / "checkout"
    root.mkdir()
    for name in ("pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, root / name)
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(FAKE_UV.format(calls=root / "calls", python=sys.executable))
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    return Layout(root=root, state=root / ".beforehand" / "state")


@pytest.fixture
def calls(checkout: Layout):
    def count() -> list[str]:
        path = checkout.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    return count
