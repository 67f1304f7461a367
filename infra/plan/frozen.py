"""A frozen plan: the text, what it would do, and the state it was made against. One file, applied or refused whole."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from schemas.errors import PlanError
from schemas.plan import Plan, load_plan
from schemas.plan_changes import Category, Change, worst
from schemas.registry.builds import Usual


class StageWork(msgspec.Struct, frozen=True):
    """One stage of the build: whether it runs, why, and what it usually costs (None: it was never built)."""

    stage: str
    hash: str
    runs: bool
    why: list[str]
    usual: Usual | None = None


class Reach(msgspec.Struct, frozen=True):
    """What a new release touches. None where it can't be known now (no Redis, no release yet)."""

    num_items: int | None = None
    num_states: int | None = None  # keys in Redis, each encoded anew at its user's next event
    state_bytes: int | None = None


class Work(msgspec.Struct, frozen=True):
    """What applying would do. ``state`` names what it was found against; ``build`` is the build's own digest of it."""

    changes: list[Change]
    stages: list[StageWork]
    restart: list[str]
    reach: Reach
    build: str
    state: str

    @property
    def category(self) -> Category:
        """The costliest change of the plan."""
        return worst(self.changes)

    @property
    def running(self) -> list[StageWork]:
        """The stages that would run."""
        return [stage for stage in self.stages if stage.runs]

    @property
    def nothing(self) -> bool:
        """Whether everything is as the plan says."""
        return not self.changes and not self.running


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """The file that ``plan explain --out`` writes and ``plan apply FILE`` reads. ``first``: no plan is in force yet."""

    v: int = 1
    text: str
    sets: list[str]
    data: str
    digest: str
    made_at: int  # ms
    who: str
    first: bool
    work: Work

    @property
    def id(self) -> str:
        """Of the plan and the state it was made against."""
        parts = [self.digest, self.data, self.work.state, str(self.made_at), self.who]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))

    def thaw(self, folder: Path) -> tuple[Path, Plan]:
        """The plan as a file in ``folder`` for the verbs that read one, and as it is read.

        Raises:
            PlanError: it does not read as what was frozen: the file was changed by hand, or the code is newer.
        """
        path = folder / "plan.toml"
        path.write_text(self.text, "utf-8")
        plan = load_plan(path, self.sets)
        if plan.digest() != self.digest:
            raise PlanError("it does not read as the plan that was frozen", where=self.id, mend="Explain it anew.")
        return path, plan


def read_frozen(path: Path) -> Frozen:
    """Raises PlanError when it is no frozen plan."""
    mend = "Make one with `./beforehand plan explain --out FILE`."
    try:
        frozen = msgspec.json.decode(path.read_bytes(), type=Frozen)
    except OSError as error:
        raise PlanError(f"can't be read: {error.strerror}", where=str(path), mend=mend) from None
    except msgspec.DecodeError as error:
        raise PlanError(f"no frozen plan: {error}", where=str(path), mend=mend) from None
    if frozen.v != 1:
        raise PlanError("of a newer version", where=str(path), value=frozen.v, mend="Upgrade this checkout.")
    return frozen


def plain(value: Any) -> Any:
    """For JSON: builtins, numbers as numbers."""
    return msgspec.to_builtins(value, enc_hook=float)
