"""A staged roll-out: the stated share, the same devices as it grows, versions as numbers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import make_vectors
from edge.layout import Offer
from edge.make_vectors import CodeVectors, Reasons, RolloutCase
from edge.names import BundleReason, EdgeReason
from edge.rollout import choose, place, version

FOLDER = make_vectors.VECTORS
CASES = msgspec.json.decode((FOLDER / "rollout.json").read_bytes(), type=list[RolloutCase])


def test_a_share_is_that_share_of_devices() -> None:
    seeds = [f"device-{number}" for number in range(4000)]
    for share in (0.05, 0.5):
        admitted = sum(place(seed, "bundle-a") < share for seed in seeds) / len(seeds)
        assert admitted == pytest.approx(share, abs=0.03)


def test_another_bundle_begins_with_other_devices() -> None:
    seeds = [f"device-{number}" for number in range(4000)]
    both = sum(place(seed, "bundle-a") < 0.1 and place(seed, "bundle-b") < 0.1 for seed in seeds)
    assert both / len(seeds) == pytest.approx(0.01, abs=0.01)


@given(st.text(max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_a_growing_share_keeps_those_that_it_has(seed: str, one: float, other: float) -> None:
    small, large = sorted((one, other))
    if choose([Offer(id="b", share=small)], seed, "1") is not None:
        assert choose([Offer(id="b", share=large)], seed, "1") is not None


@pytest.mark.parametrize(
    ("older", "newer"), [("2.9", "2.10"), ("2", "2.0.1"), ("", "0.1"), ("1.99", "2"), ("2.9-beta", "2.9.1")]
)
def test_versions_compare_as_numbers(older: str, newer: str) -> None:
    assert version(older) < version(newer)


def test_versions_that_are_the_same() -> None:
    assert version("2") == version("2.0.0") == version("2.0-rc1")
    assert version("") == version("0") == version("x")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.app} {[o.share for o in case.offers]}")
def test_the_vectors_hold(case: RolloutCase) -> None:
    chosen = choose(case.offers, case.seed, case.app)
    assert (chosen.id if chosen else None) == case.chosen
    assert place(case.seed, case.offers[0].id if case.offers else "") == case.place


def test_the_other_vectors_hold(bundle, parts) -> None:
    codes = msgspec.json.decode((FOLDER / "codes.json").read_bytes(), type=CodeVectors)
    assert codes == make_vectors.code_vectors(bundle, parts.item_ids)
    assert None in codes.codes.values()
    reasons = msgspec.json.decode((FOLDER / "reasons.json").read_bytes(), type=Reasons)
    assert (reasons.edge, reasons.bundle) == (list(EdgeReason), list(BundleReason))
