"""``plan.toml``: what is precomputed where, how old it may be, and what stands in for it.

The structs are frozen. Unknown keys, bad units, missing fallbacks and cycles are refused with file, line, value
and mend.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec

from schemas.errors import PlanError
from schemas.freshness import Freshness
from schemas.locations import plan_path
from schemas.names import Rung, Tier
from schemas.units import num_bytes, seconds

SOURCES = ("catalogue", "events", "profiles", "device")
NO_FALLBACK = "none"

Positive = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Duration(float):
    """Seconds, written with a unit."""


class Size(int):
    """Bytes, written with a unit."""


class Asset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something precomputed."""

    tier: Tier
    inputs: list[str]
    fresh_for: Duration
    usable_for: Duration
    budget: Duration
    fallback: str
    schedule: str | None = None

    @property
    def freshness(self) -> Freshness:
        """The rule every reader applies."""
        return Freshness(self.fresh_for, self.usable_for)


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The semantic index."""

    levels: Annotated[int, msgspec.Meta(ge=2, le=8)]
    codes: Annotated[int, msgspec.Meta(ge=2, le=4096)]
    neighbours: Positive


class ModelPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sizes and training of the generator."""

    width: Annotated[int, msgspec.Meta(ge=8, multiple_of=8)]
    layers: Positive
    heads: Positive
    window: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    state_rows: Positive
    prompt_rows: Positive
    local_events: Positive
    epochs: Positive
    batch_size: Positive
    learning_rate: Annotated[float, msgspec.Meta(gt=0)]
    seed: int


class Nearline(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The window job and the encoder worker."""

    refresh: Duration
    max_future: Duration
    state_lifetime: Duration
    max_bad_share: Share
    neighbours: Positive
    candidates_per_s: Annotated[float, msgspec.Meta(ge=0)]


class Online(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The look-up service."""

    budget: Duration
    slack: Duration
    store_timeout: Duration
    k_max: Positive
    cache_bytes: Size
    workers: Positive
    ladder: list[Rung]


class Gate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a new release must reach, as shares of the current one's metrics."""

    recall_at_50: Annotated[float, msgspec.Meta(ge=0)]


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole of plan.toml."""

    version: int
    assets: dict[str, Asset]
    index: Index
    model: ModelPlan
    nearline: Nearline
    online: Online
    gate: Gate

    def order(self) -> list[str]:
        """Assets, each after its inputs."""
        graph = {name: [i for i in asset.inputs if i in self.assets] for name, asset in self.assets.items()}
        return list(TopologicalSorter(graph).static_order())

    def digest(self) -> str:
        """Changes whenever anything in the plan does."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted", enc_hook=float)).hexdigest()[:16]


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


class Source:
    """Where a plan came from: finds the line of a field."""

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        self.lines = text.splitlines()

    def where(self, field: str) -> str:
        """``plan.toml:12 online.budget``, without the line when it can't be found."""
        table, _, key = field.rpartition(".")
        inside = not table
        for number, line in enumerate(self.lines, 1):
            if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                inside = header[1] == table
                if header[1] == field:
                    return f"{self.name}:{number} {field}"
            elif inside and re.match(rf"\s*{re.escape(key)}\s*=", line):
                return f"{self.name}:{number} {field}"
        return f"{self.name} {field}"


def check_plan(tree: Mapping[str, Any], source: Source) -> Plan:
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
    _check_assets(plan, source)
    _check_numbers(plan, source)
    return plan


def _unit(kind: type, value: object) -> Any:
    if not isinstance(value, str):
        raise ValueError("write it as text with a unit, as in 500ms or 64MB")
    return Duration(seconds(value)) if kind is Duration else Size(num_bytes(value))


def _refuse_unknown(tree: Mapping[str, Any], struct: type[msgspec.Struct], prefix: str, source: Source) -> None:
    hints = get_type_hints(struct)
    for key, value in tree.items():
        field = f"{prefix}{key}"
        if key not in hints:
            near = difflib.get_close_matches(key, hints, 1)
            known = ", ".join(sorted(hints))
            mend = f"Did you mean {near[0]}?" if near else f"Known here: {known}."
            raise PlanError("unknown key", where=source.where(field), value=key, mend=mend)
        hint = hints[key]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and isinstance(value, dict):
            _refuse_unknown(value, hint, f"{field}.", source)
        elif field == "assets" and isinstance(value, dict):
            for name, asset in value.items():
                if isinstance(asset, dict):
                    _refuse_unknown(asset, Asset, f"assets.{name}.", source)


def _located(error: msgspec.ValidationError, tree: Mapping[str, Any], source: Source) -> PlanError:
    """Turn msgspec's ``… - at `$.online.budget` `` into file, line, field and value."""
    message, _, path = str(error).partition(" - at `$")
    steps = [s for s in re.split(r"[.\[\]`]+", path.replace("[...]", ".<any>")) if s]
    steps, value = _follow(steps, tree, message)
    return PlanError(message, where=source.where(".".join(steps)), value=value, mend="See docs/plan.md.")


def _follow(steps: list[str], tree: Mapping[str, Any], message: str) -> tuple[list[str], object]:
    value: Any = tree
    named: list[str] = []
    for step in steps:
        # msgspec does not say which key of a mapping: find the one that fails
        name = next((k for k, v in value.items() if not _asset_ok(v)), step) if step == "<any>" else step
        if not isinstance(value, dict) or name not in value:
            break
        named.append(name)
        value = value[name]
    missing = re.search(r"missing required field `(\w+)`", message)
    return (named, None) if missing else (named, value if not isinstance(value, dict) else None)


def _asset_ok(value: object) -> bool:
    try:
        msgspec.convert(value, Asset, dec_hook=_unit)
    except msgspec.ValidationError:
        return False
    return True


def _check_assets(plan: Plan, source: Source) -> None:
    for name, asset in plan.assets.items():
        field = f"assets.{name}"
        known = [*plan.assets, *SOURCES]
        for given in asset.inputs:
            if given not in known:
                near = difflib.get_close_matches(given, known, 1)
                mend = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
                raise PlanError("unknown input", where=source.where(f"{field}.inputs"), value=given, mend=mend)
        if asset.fallback != NO_FALLBACK and asset.fallback not in plan.assets:
            raise PlanError(
                "unknown fallback",
                where=source.where(f"{field}.fallback"),
                value=asset.fallback,
                mend=f'Name an asset ({", ".join(plan.assets)}) or "none".',
            )
        if asset.tier in (Tier.NEARLINE, Tier.EDGE) and asset.fallback == NO_FALLBACK:
            raise PlanError(
                "an asset that can be missing at a request needs a fallback",
                where=source.where(f"{field}.fallback"),
                value=asset.fallback,
                mend="Name the offline asset that stands in for it.",
            )
        if asset.usable_for < asset.fresh_for:
            raise PlanError(
                "usable_for is shorter than fresh_for",
                where=source.where(f"{field}.usable_for"),
                value=f"{float(asset.usable_for)} s",
                mend="Make it at least as long.",
            )
        if asset.schedule is not None and (asset.tier is not Tier.OFFLINE or len(asset.schedule.split()) != 5):
            raise PlanError(
                "a schedule is five cron fields, on offline assets only",
                where=source.where(f"{field}.schedule"),
                value=asset.schedule,
                mend='Write "0 3 * * *" for every day at 03:00 UTC.',
            )
    _check_cycles(plan, source)


def _check_cycles(plan: Plan, source: Source) -> None:
    edges = {
        "inputs": {n: [i for i in a.inputs if i in plan.assets] for n, a in plan.assets.items()},
        "fallback": {n: [a.fallback] for n, a in plan.assets.items() if a.fallback != NO_FALLBACK},
    }
    for field, graph in edges.items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = error.args[1]
            raise PlanError(
                f"assets depend on each other in a circle: {' → '.join(reversed(circle))}",
                where=source.where(f"assets.{circle[0]}.{field}"),
                mend="Take one of these out.",
            ) from None


def _check_numbers(plan: Plan, source: Source) -> None:
    required = {
        "semantic_index",
        "generator",
        "cohort_lists",
        "intent_state",
        "candidates",
        "prompt_embedding",
    }
    rules = [
        (
            not required - set(plan.assets),
            "assets",
            sorted(required - set(plan.assets)),
            "Declare these assets.",
        ),
        (
            plan.model.width % plan.model.heads == 0,
            "model.heads",
            plan.model.heads,
            "Make it divide model.width.",
        ),
        (
            plan.nearline.state_lifetime >= plan.assets["intent_state"].usable_for
            if not required - set(plan.assets)
            else True,
            "nearline.state_lifetime",
            f"{float(plan.nearline.state_lifetime)} s",
            "Make it at least assets.intent_state.usable_for: a shorter one cuts returning users' windows.",
        ),
        (bool(plan.online.ladder), "online.ladder", plan.online.ladder, "Name at least one rung."),
        (Rung.NONE not in plan.online.ladder, "online.ladder", "none", "Take it out: it is what is left."),
        (
            len(set(plan.online.ladder)) == len(plan.online.ladder),
            "online.ladder",
            plan.online.ladder,
            "Name each rung once.",
        ),
    ]
    for holds, field, value, mend in rules:
        if not holds:
            raise PlanError("does not hold", where=source.where(field), value=value, mend=mend)


def _override(tree: dict[str, Any], override: str) -> None:
    path, equals, raw = override.partition("=")
    where = f"--set {override}"
    if not equals:
        raise PlanError("an override is section.key=value", where=where, mend="As in --set model.epochs=2.")
    try:
        value = tomllib.loads(f"x = {raw}")["x"]
    except tomllib.TOMLDecodeError:
        value = raw  # text without quotes, as a shell leaves it
    table: Any = tree
    *tables, key = path.strip().split(".")
    for name in tables:
        table = table.get(name) if isinstance(table, dict) else None
    if not isinstance(table, dict) or key not in table:
        raise PlanError("nothing of that name in the plan", where=where, mend="See `./beforehand plan show`.")
    table[key] = value
