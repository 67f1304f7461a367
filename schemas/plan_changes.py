"""What differs between two plans, and what each difference costs: nothing but reading, a build, or more. Pure.

``tests/offline/test_offline_plan_fields.py`` holds the categories against what the stages of ``build`` really read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, cast

import msgspec

from schemas.plan_types import Plan


class Category(StrEnum):
    """In the order of what they cost."""

    NONE = "none"
    POLICY = "read policy"  # readers start again with other numbers; nothing is computed anew
    REBUILD = "rebuild"  # the stages that read it run again, and what depends on them
    BREAKING = "breaking"  # besides: what devices and stores hold has another shape, or the chain another form


class Change(msgspec.Struct, frozen=True):
    """One field. ``before`` or ``after`` is None where the field is absent. ``readers``: who must start again."""

    field: str
    before: Any
    after: Any
    category: Category
    readers: list[str]


SHAPES = {
    *("index.levels", "index.codes"),
    *(f"model.{key}" for key in ("width", "window", "state_rows", "prompt_rows", "local_events")),
}
"""What states in Redis and encoders on devices have in their shapes."""
BUILT = ("index.", "model.", "export.")
BUILT_TOO = {"nearline.neighbours", "online.k_max"}
FORM = ("tier", "inputs")
READERS = {
    "assets": ["serve", "worker", "dags"],
    "nearline": ["stream deploy", "worker"],
    "edge": ["edge bundle", "edge rollout"],
    "online": ["serve"],
}
"""Verbs that read a section when they start. What is built reaches every tier with its release."""


def compare(before: Plan | Mapping[str, Any], after: Plan) -> list[Change]:
    """Every field that differs, in the order of ``after``.

    ``before`` may be the JSON of a plan that this code can't read any more, or that lacks fields of today.
    """
    old, new = dict(leaves(before)), dict(leaves(after))
    fields = [*new, *(field for field in old if field not in new)]
    return [
        Change(field, old.get(field), new.get(field), _category(field, old, new), _readers(field))
        for field in fields
        if old.get(field) != new.get(field)
    ]


def worst(changes: Iterable[Change]) -> Category:
    """The costliest category among them."""
    order = list(Category)
    return max((change.category for change in changes), key=order.index, default=Category.NONE)


def leaves(plan: Plan | Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """``("model.width", 128)`` and so on; durations in seconds, sizes in bytes; a list is one leaf."""
    tree = msgspec.to_builtins(plan, enc_hook=float) if isinstance(plan, Plan) else plan
    yield from _leaves(cast("Mapping[str, Any]", tree), "")


def _leaves(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _category(field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Category:
    if field in SHAPES or field == "version":
        return Category.BREAKING
    if field.startswith("assets."):
        there = f"{field.rpartition('.')[0]}.tier"
        comes_or_goes = there not in old or there not in new
        return Category.BREAKING if comes_or_goes or field.endswith(FORM) else Category.POLICY
    return Category.REBUILD if field.startswith(BUILT) or field in BUILT_TOO else Category.POLICY


def _readers(field: str) -> list[str]:
    return READERS.get(field.partition(".")[0], [])
