"""What `plan diff` calls a rebuild is what makes a stage run again, field by field."""

from typing import Any

import msgspec
import pytest

from offline.build.stages import STAGES
from schemas.plan import load_plan
from schemas.plan_changes import Category, compare, leaves
from schemas.plan_types import Plan

PLAN = load_plan()
FIELDS = {field: value for field, value in leaves(PLAN) if not field.startswith(("assets.", "version"))}
OTHERS = {"index.method": "rqvae", "index.levels": 4, "model.align": False, "online.lane_value": 2.0}


def other(field: str, value: Any) -> Any:
    if field in OTHERS:
        return OTHERS[field]
    if isinstance(value, list):
        return value[:-1]
    if isinstance(value, str):
        return f"{value}9"
    return value / 2 if isinstance(value, float) else value + 8


def changed(field: str) -> Plan:
    tree = msgspec.to_builtins(PLAN, enc_hook=float)
    table, *path = field.split(".")
    where = tree[table]
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = other(field, where[path[-1]])
    return msgspec.convert(tree, Plan, dec_hook=lambda kind, value: kind(value))


def settings(plan: Plan) -> list[bytes]:
    """Of every stage that computes; `promote` only moves the pointer."""
    read = [stage.settings(plan) for stage in STAGES if stage.name != "promote"]
    return [msgspec.json.encode(one, enc_hook=float) for one in read]


@pytest.mark.parametrize("field", FIELDS)
def test_a_stage_reads_what_is_called_a_rebuild_and_nothing_else(field: str):
    plan = changed(field)
    (change,) = compare(PLAN, plan)
    runs = settings(plan) != settings(PLAN)
    assert runs == (change.category in (Category.REBUILD, Category.BREAKING)), f"{field} is {change.category}"
