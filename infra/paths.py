"""Where things lie: the repository, what is built beside it, and the state.

Everything that the launcher makes is under `.beforehand/` (ignored by git) and can be deleted at any time:
it is made again when it is needed.
State is the exception: `BEFOREHAND_STATE` moves it elsewhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Layout:
    """The folders of one checkout; tests make their own."""

    root: Path
    state: Path

    @classmethod
    def current(cls) -> Layout:
        """This checkout, with the state folder that `BEFOREHAND_STATE` names."""
        named = os.environ.get("BEFOREHAND_STATE")
        state = Path(named).expanduser().absolute() if named else ROOT / ".beforehand" / "state"
        return cls(root=ROOT, state=state)

    @property
    def made(self) -> Path:
        """What the launcher makes: environments, tools, jars."""
        return self.root / ".beforehand"

    @property
    def envs(self) -> Path:
        return self.made / "envs"

    @property
    def jars(self) -> Path:
        return self.made / "jars"

    @property
    def tools(self) -> Path:
        return self.made / "tools"

    @property
    def run(self) -> Path:
        """One folder per running process: pid.json, log, data."""
        return self.state / "run"

    def env_python(self, tier: str) -> Path:
        return self.envs / tier / "bin" / "python"
