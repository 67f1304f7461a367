"""Where things are: one folder of state (``$BEFOREHAND_STATE``) and the addresses of the running services."""

from __future__ import annotations

import os
from pathlib import Path

from schemas.errors import StoreError

ROOT = Path(os.environ.get("BEFOREHAND_ROOT", Path(__file__).resolve().parent.parent))


def state_dir() -> Path:
    """``$BEFOREHAND_STATE``, by default ``.beforehand/state`` beside the sources."""
    return Path(os.environ.get("BEFOREHAND_STATE", ROOT / ".beforehand" / "state"))


def releases_dir() -> Path:
    """Where releases are, one folder each."""
    return state_dir() / "releases"


def private_key_path() -> Path:
    """The key that signs releases: ``$BEFOREHAND_SIGNING_KEY`` or ``keys/release.pem``."""
    return Path(os.environ.get("BEFOREHAND_SIGNING_KEY", state_dir() / "keys" / "release.pem"))


def public_key_path() -> Path:
    """The key that verifies releases."""
    return Path(os.environ.get("BEFOREHAND_VERIFY_KEY", state_dir() / "keys" / "release.pub"))


def registry_url() -> str:
    """SQLAlchemy URL of the registry: ``$BEFOREHAND_REGISTRY`` or SQLite in the state folder."""
    return os.environ.get("BEFOREHAND_REGISTRY", f"sqlite:///{state_dir() / 'registry.db'}")


def plan_path() -> Path:
    """``$BEFOREHAND_PLAN`` or ``plan.toml`` beside the sources."""
    return Path(os.environ.get("BEFOREHAND_PLAN", ROOT / "plan.toml"))


def address(name: str) -> str:
    """The address in ``$BEFOREHAND_<NAME>`` (redis, kafka, flink, online).

    Raises:
        StoreError: when it is not set, with the mend.
    """
    variable = f"BEFOREHAND_{name.upper()}"
    value = os.environ.get(variable)
    if not value:
        raise StoreError(
            f"no address for {name}",
            where=variable,
            mend="Run `./beforehand up`, or set the variable yourself.",
        )
    return value
