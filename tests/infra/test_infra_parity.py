"""Parity: the comparison against a naive one, the sample, and each tier's numbers of a real release."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from infra.parity import BOUNDS, ROOMS, Bound, compare, difference, main, sample

ROWS = Bound("edge", "prompt", 0.01, "")
ITEMS = Bound("offline", "items", 0.5, "")


def numbers(**tiers: dict[str, dict[str, list[float]]]) -> Any:
    return {"online": {"u": {"prompt": [1.0, 2.0], "items": [1, 2, 3]}}} | tiers


def test_the_largest_difference_of_any_user_counts() -> None:
    found = numbers(edge={"u": {"prompt": [1.0, 2.005]}, "v": {"prompt": [9.0, 9.0]}})
    (row,) = compare(found, (ROWS,))
    assert row["found"] == pytest.approx(0.005)
    assert row["within"]
    assert row["user"] == "u"


@pytest.mark.parametrize("own", [{}, {"u": {"prompt": [1.0]}}, {"u": {"prompt": [1.0, math.nan]}}, {"u": {}}])
def test_what_is_missing_shorter_or_no_number_is_never_within(own: Any) -> None:
    (row,) = compare(numbers(edge=own), (ROWS,))
    assert not row["within"]
    assert row["user"] == "u"


def test_items_are_compared_as_sets() -> None:
    assert difference("items", [3, 1, 2], [1, 2, 3]) == 0
    assert difference("prompted_items", [1, 2, 4], [1, 2, 3]) == pytest.approx(2 / 4)
    assert difference("items", [], []) == 0
    assert difference("items", [], [1]) == 1
    (row,) = compare(numbers(offline={"u": {"items": [1, 2, 9]}}), (ITEMS,))
    assert row["within"]


def test_every_tier_has_a_bound() -> None:
    assert {bound.tier for bound in BOUNDS} | {"online"} == set(ROOMS)


def event(user: str, number: int, at: int) -> dict[str, Any]:
    return {"event_id": f"{user}{number}", "user_id": user, "item_id": f"i{number}", "kind": "click", "at": at}


def test_the_sample_is_the_same_each_time_and_holds_window_and_local_events(tmp_path: Path) -> None:
    path = tmp_path / "replay.jsonl"
    lines = [event(user, n, 1_750_000_000_000 + n) for user in ("a", "b", "c", "d") for n in range(9)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in [*lines, lines[0]]))
    cases = sample(path, 2)
    assert cases == sample(path, 2)
    assert len({case["user_id"] for case in cases}) == 2
    for case in cases:
        assert [e["item_id"] for e in case["local_events"]] == ["i6", "i7", "i8"]
        assert [e["item_id"] for e in case["window"]] == ["i5", "i4", "i3", "i2", "i1", "i0"]
        assert case["at"] > case["local_events"][-1]["at"]


def test_a_user_with_one_event_has_a_window(tmp_path: Path) -> None:
    path = tmp_path / "replay.jsonl"
    path.write_text(json.dumps(event("a", 1, 1_750_000_000_000)) + "\n")
    (case,) = sample(path, 5)
    assert (len(case["window"]), case["local_events"]) == (1, [])


def test_nobody_compared_is_no_agreement() -> None:
    (row,) = compare({"online": {}, "edge": {}}, (ROWS,))
    assert not row["within"]
    for users in ("0", "-1", "x"):
        with pytest.raises(SystemExit):
            main(["--users", users])
