"""``plan.toml``: what is precomputed where, how old it may be, and what stands in for it.

Unknown keys, bad units, missing fallbacks and cycles are refused with file, line, value and mend.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_type_hints

import msgspec

from schemas.errors import PlanError
from schemas.locations import plan_path
from schemas.plan_rules import check_rules
from schemas.plan_types import NO_FALLBACK, Asset, Duration, GateShare, Plan, Size, Source
from schemas.units import num_bytes, seconds

__all__ = ["NO_FALLBACK", "Asset", "Plan", "Source", "check_plan", "load_plan"]

Tree = Mapping[str, Any]


def load_plan(path: Path | None = None, overrides: Sequence[str] = ()) -> Plan:
    """Read and check a plan. ``overrides`` are ``section.key=value`` with TOML values, as on the command line.

    Raises:
        PlanError: naming file, line where there is one, field, value and mend.
    """
    path = path or plan_path()
    try:
        text = path.read_text("utf-8")
        tree = tomllib.loads(text)
    except OSError as error:
        raise PlanError(f"can't be read: {error.strerror}", where=str(path), mend="Set $BEFOREHAND_PLAN.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"not TOML: {error}", where=str(path), mend="Mend the line it names.") from None
    for override in overrides:
        _override(tree, override)
    return check_plan(tree, Source(str(path), text))


def check_plan(tree: Tree, source: Source) -> Plan:
    """The plan in ``tree``, or the PlanError of its first fault."""
    _refuse_unknown(tree, Plan, "", source)
    if tree.get("version") != 1:
        raise PlanError(
            "unknown version",
            where=source.where("version"),
            value=tree.get("version"),
            mend="Write version = 1.",
        )
    try:
        plan = msgspec.convert(tree, Plan, dec_hook=_unit)
    except msgspec.ValidationError as error:
        raise _located(error, tree, source) from None
    check_rules(plan, source)
    return plan


def _unit(kind: type, value: object) -> Any:
    if not isinstance(value, str):
        raise ValueError("write it as text with a unit, as in 500ms or 64MB")
    return Duration(seconds(value)) if kind is Duration else Size(num_bytes(value))


def _refuse_unknown(tree: Tree, struct: type[msgspec.Struct], prefix: str, source: Source) -> None:
    hints = get_type_hints(struct)
    for key, value in tree.items():
        field = f"{prefix}{key}"
        if key not in hints:
            near = difflib.get_close_matches(key, hints, 1)
            mend = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(sorted(hints))}."
            raise PlanError("unknown key", where=source.where(field), value=key, mend=mend)
        hint = hints[key]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            _refuse_unknown(_table(value), hint, f"{field}.", source)
        elif field == "assets":
            for name, asset in _table(value).items():
                _refuse_unknown(_table(asset), Asset, f"assets.{name}.", source)


def _table(value: object) -> Tree:
    """``value`` when it is a table; what is none is refused later, by its type."""
    return cast(Tree, value) if isinstance(value, dict) else {}


def _located(error: msgspec.ValidationError, tree: Tree, source: Source) -> PlanError:
    """Turn msgspec's ``… - at `$.online.budget` `` into file, line, field and value."""
    message, _, path = str(error).partition(" - at `$")
    steps = [s for s in re.split(r"[.\[\]`]+", path.replace("[...]", ".<any>")) if s]
    steps, value = _follow(steps, tree, message)
    return PlanError(message, where=source.where(".".join(steps)), value=value, mend="See docs/plan.md.")


def _follow(steps: list[str], tree: Tree, message: str) -> tuple[list[str], object]:
    value: object = tree
    named: list[str] = []
    for step in steps:
        table = _table(value)
        # msgspec does not say which key of a mapping: find the one that fails
        kind = Asset if named == ["assets"] else GateShare
        name = next((key for key, one in table.items() if not _fits(one, kind)), step) if step == "<any>" else step
        if name not in table:
            break
        named.append(name)
        value = table[name]
    return named, None if "missing required field" in message or isinstance(value, dict) else value


def _fits(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, dec_hook=_unit)
    except msgspec.ValidationError:
        return False
    return True


def _override(tree: dict[str, Any], override: str) -> None:
    path, equals, raw = override.partition("=")
    where = f"--set {override}"
    if not equals:
        raise PlanError("an override is section.key=value", where=where, mend="As in --set model.epochs=2.")
    try:
        value = tomllib.loads(f"x = {raw}")["x"]
    except tomllib.TOMLDecodeError:
        value = raw  # text without quotes, as a shell leaves it
    table = tree
    *tables, key = path.strip().split(".")
    for name in tables:
        table = cast(dict[str, Any], _table(table.get(name)))
    if key not in table:
        raise PlanError("nothing of that name in the plan", where=where, mend="See `./beforehand plan show`.")
    table[key] = value
