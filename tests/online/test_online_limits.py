"""Exclusions and allow-lists against a loop over the list."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from online_values import FIXTURES, KEY

from online.limits import limits_of
from online.release import load
from schemas.api import RecallRequest

RELEASE = load(FIXTURES / "release", KEY)
CATEGORIES = RELEASE.catalogue.categories


@settings(max_examples=60)
@given(
    items=st.lists(st.integers(-1, 61), max_size=30, unique=True),
    exclude=st.lists(st.sampled_from([*RELEASE.catalogue.item_ids, "unknown"]), max_size=20),
    allow=st.lists(st.sampled_from([*CATEGORIES, "unknown"]), max_size=3),
    gone=st.none() | st.sets(st.integers(0, 59)),
    k=st.integers(1, 20),
)
def test_pick_is_the_naive_filter(items, exclude, allow, gone, k):
    mask = None if gone is None else np.isin(np.arange(60), list(gone))
    limits = limits_of(RecallRequest(user_id="u", exclude=exclude, allow=allow), RELEASE, mask)
    assert limits.none == (not exclude and not allow and gone is None)
    scores = np.arange(len(items), 0, -1, dtype=np.float32)
    picked, kept = limits.pick(RELEASE, np.array(items, np.int32), scores, k)
    naive = [
        (number, score)
        for number, score in zip(items, scores.tolist(), strict=True)
        if 0 <= number < 60
        and RELEASE.catalogue.item_ids[number] not in exclude
        and number not in (gone or ())
        and (not set(allow) & set(CATEGORIES) or CATEGORIES[RELEASE.arrays["item_category"][number]] in allow)
    ][:k]
    assert limits.nothing == (bool(allow) and not set(allow) & set(CATEGORIES))
    assert list(zip(picked.tolist(), kept.tolist(), strict=True)) == naive


def test_scores_that_are_no_numbers_are_left_out():
    limits = limits_of(RecallRequest(user_id="u"), RELEASE)
    picked, _ = limits.pick(RELEASE, np.array([1, 2, 3]), np.array([1.0, np.nan, np.inf], np.float32), 3)
    assert picked.tolist() == [1]


def test_padding_has_few_lengths():
    ids = RELEASE.catalogue.item_ids
    lengths = {limits_of(RecallRequest(user_id="u", exclude=ids[:n]), RELEASE).exclude.shape[1] for n in range(60)}
    assert lengths == {1, 4, 16, 64}
