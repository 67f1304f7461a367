"""What a change of the plan costs, as an operator is told."""

import tomllib
from pathlib import Path

import pytest

from schemas.plan import Source, check_plan, load_plan
from schemas.plan_changes import Category, compare, leaves, worst

TEXT = (Path(__file__).parents[2] / "plan.toml").read_text()


def plan(*sets: str):
    return load_plan(Path(__file__).parents[2] / "plan.toml", sets)


def parsed(text: str):
    return check_plan(tomllib.loads(text), Source("plan.toml", text))


def test_an_unchanged_plan_and_another_comment_or_order_are_no_change():
    assert compare(plan(), plan()) == []
    assert worst([]) is Category.NONE
    commented = TEXT.replace("levels = 3 ", "levels = 3 # described anew: ").replace("version = 1", "# x\nversion = 1")
    assert commented != TEXT
    assert compare(plan(), parsed(commented)) == []
    assert parsed(commented).digest() == plan().digest()
    assert compare(plan(), plan("nearline.refresh=0.5s")) == []


CASES = [
    ("assets.candidates.fresh_for=2h", Category.POLICY, ["serve", "worker", "dags"]),
    ("assets.candidates.fallback=semantic_index", Category.POLICY, ["serve", "worker", "dags"]),
    ("online.ladder=['generate','popular']", Category.POLICY, ["serve"]),
    ("nearline.refresh=1s", Category.POLICY, ["stream deploy", "worker"]),
    ("gate.validation_recall_at_50=0.5", Category.POLICY, []),
    ("model.epochs=9", Category.REBUILD, []),
    ("index.neighbours=60", Category.REBUILD, []),
    ("online.k_max=50", Category.REBUILD, ["serve"]),
    ("model.width=64", Category.BREAKING, []),
    ("index.levels=4", Category.BREAKING, []),
    ("assets.candidates.inputs=['intent_state']", Category.BREAKING, ["serve", "worker", "dags"]),
]


@pytest.mark.parametrize(("change", "category", "readers"), CASES)
def test_the_category_of_a_change(change: str, category: Category, readers: list[str]):
    (found,) = compare(plan(), plan(change))
    assert (found.category, found.readers) == (category, readers)
    assert found.field == change.partition("=")[0]
    assert found.before != found.after


def test_an_asset_that_comes_or_goes_is_breaking_in_every_field():
    more = TEXT.replace(
        "[assets.candidates]",
        '[assets.extra]\ntier = "offline"\ninputs = ["catalogue"]\nfresh_for = "1d"\nusable_for = "2d"\n'
        'budget = "1m"\nfallback = "none"\n\n[assets.candidates]',
    )
    for old, new in ((plan(), parsed(more)), (parsed(more), plan())):
        changes = compare(old, new)
        assert {c.field.rpartition(".")[0] for c in changes} == {"assets.extra"}
        assert {c.category for c in changes} == {Category.BREAKING}


def test_the_costliest_counts():
    changes = compare(plan(), plan("nearline.refresh=1s", "model.epochs=9"))
    assert len(changes) == 2
    assert worst(changes) is Category.REBUILD


def test_every_field_is_a_leaf_once():
    fields = [field for field, _ in leaves(plan())]
    assert len(fields) == len(set(fields))
    assert {"assets.intent_state.fresh_for", "online.ladder", "edge.share"} <= set(fields)
