"""Frozen plan → stages → one evaluator. What it says is the build's own judgement; what it does is that or nothing."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from infra.errors import LauncherError
from infra.plan.frozen import Frozen, Reach, StageWork, Work, plain
from infra.verb_runner import run_verb
from schemas.errors import PlanError, StoreError
from schemas.plan import Plan, load_plan
from schemas.plan_changes import Category, compare
from schemas.registry import Registry
from schemas.registry.builds import Builds
from schemas.registry.database import holder, wall_ms
from schemas.registry.leases import LeaseHeldError, held
from schemas.registry.plans import Applied, Plans


class Builder(Protocol):
    """The offline room's build of one data set by one plan."""

    def explain(self) -> dict[str, Any]:
        """``build --explain``: keys ``explain`` (stage, hash, runs, why) and ``digest``."""
        ...

    def build(self, expect: str) -> dict[str, Any]:
        """``build --expect``. Raises StoreError when it would do anything else than ``expect``."""
        ...


class LauncherBuilder:
    """The verb ``build``, as a person types it. ``sets`` are overrides of the plan in ``path``."""

    def __init__(self, path: Path, sets: Sequence[str], data: str) -> None:
        self._path = path
        self._words = ["build", "--data", data, *(word for one in sets for word in ("--set", one))]

    def explain(self) -> dict[str, Any]:
        """What would run."""
        return self._run("--explain", quiet=True)

    def build(self, expect: str) -> dict[str, Any]:
        """Run it, or be refused."""
        return self._run("--expect", expect)

    def _run(self, *words: str, quiet: bool = False) -> dict[str, Any]:
        os.environ["BEFOREHAND_PLAN"] = str(self._path.absolute())
        try:
            return run_verb(*self._words, *words, quiet=quiet)
        except LauncherError as error:
            raise StoreError(error.what, mend=error.mend) from None


MakeBuilder = Callable[[Path, Sequence[str], str], Builder]


class Evaluator:
    """Explains and applies plans. ``reach`` says what a new release would touch."""

    def __init__(
        self,
        registry: Registry,
        make_builder: MakeBuilder = LauncherBuilder,
        reach: Callable[[], Reach] = Reach,
    ) -> None:
        self._registry = registry
        self._plans = Plans(registry.database)
        self._builds = Builds(registry.database)
        self._make_builder = make_builder
        self._reach = reach

    def freeze(self, path: Path, sets: Sequence[str], data: str) -> Frozen:
        """The plan in ``path`` with its overrides, and what applying it now would do."""
        plan, last = load_plan(path, sets), self._plans.last()
        work = self._work(plan, self._make_builder(path, sets, data), last, data)
        return Frozen(
            text=path.read_text("utf-8"),
            sets=list(sets),
            data=data,
            digest=plan.digest(),
            made_at=wall_ms(),
            who=holder(),
            first=last is None,
            work=work,
        )

    def apply(self, frozen: Frozen, *, why: str, breaking: bool = False) -> dict[str, Any]:
        """Do what ``frozen`` says and nothing else. Again: nothing.

        Returns:
            ``changed``, and what was done: ``ran`` (stages), ``release``, ``restart``, ``seconds``.

        Raises:
            StoreError: somebody else applies one, or something changed since it was made.
            PlanError: it is a breaking change and ``breaking`` was not said.
        """
        name = f"plan:{frozen.data}"
        try:
            with held(self._registry.database, name, about=f"plan {frozen.id}: {why}") as (lease, _):
                return self._apply(frozen, why, breaking, lease)
        except LeaseHeldError as error:
            raise StoreError(
                f"the plan is out of date: {error.lease.holder} applies another one now ({error.lease.about})",
                where=frozen.id,
                mend="When that is done, look again with `./beforehand plan explain`.",
            ) from None

    def _apply(self, frozen: Frozen, why: str, breaking: bool, lease: Any) -> dict[str, Any]:
        begun = time.monotonic()
        last = self._plans.last()
        if last is not None and last.id == frozen.id:
            return _outcome(frozen, changed=False, begun=begun)
        with tempfile.TemporaryDirectory(prefix="beforehand-plan-") as folder:
            path, plan = frozen.thaw(Path(folder))
            builder = self._make_builder(path, frozen.sets, frozen.data)
            now = self._work(plan, builder, last, frozen.data)
            if now.state != frozen.work.state:
                raise StoreError(
                    f"the plan is out of date: {_since(frozen, last)}",
                    where=frozen.id,
                    mend="Look again with `./beforehand plan explain`.",
                )
            if now.nothing and last is not None:
                return _outcome(frozen, changed=False, begun=begun)
            if now.category is Category.BREAKING and not breaking:
                fields = ", ".join(c.field for c in now.changes if c.category is Category.BREAKING)
                mend = "Read `./beforehand plan explain`, then say --breaking."
                raise PlanError(f"a breaking change: {fields}", where=frozen.id, mend=mend)
            built = builder.build(now.build) if now.running else {}
        whole = msgspec.json.encode(plain(plan)).decode()
        self._plans.apply(frozen.id, frozen.digest, whole, frozen.data, why=why, lease=lease)
        return _outcome(frozen, changed=True, begun=begun, release=built.get("release"), ran=built.get("changed", []))

    def _work(self, plan: Plan, builder: Builder, last: Applied | None, data: str) -> Work:
        said = builder.explain()
        changes = compare(msgspec.json.decode(last.plan), plan) if last else []
        stages = [
            StageWork(one["stage"], one["hash"], one["runs"], one["why"], self._builds.usual(data, one["stage"]))
            for one in said["explain"]
        ]
        pointer = self._registry.pointer()
        against = [last.number if last else 0, plan.digest(), data, pointer.changes, said["digest"]]
        return Work(
            changes=changes,
            stages=stages,
            restart=list(dict.fromkeys(reader for change in changes for reader in change.readers)),
            reach=self._reach() if any(stage.runs for stage in stages) else Reach(),
            build=said["digest"],
            state=hashlib.sha256(msgspec.json.encode(against)).hexdigest()[:16],
        )


def _since(frozen: Frozen, last: Applied | None) -> str:
    """What happened since it was made, as far as is known."""
    if last is not None and last.at >= frozen.made_at:
        return f"{last.who} applied another one: {last.why}"
    return "the data, the stages or what is current changed since it was made"


def _outcome(
    frozen: Frozen, *, changed: bool, begun: float, release: str | None = None, ran: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "id": frozen.id,
        "digest": frozen.digest,
        "changed": changed,
        "category": frozen.work.category,
        "ran": list(ran),
        "release": release,
        "restart": frozen.work.restart if changed else [],
        "seconds": round(time.monotonic() - begun, 2),
    }
