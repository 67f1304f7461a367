"""The neighbours of a window, against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearline.neighbours import Neighbours
from nearline.release import Release

NUM_ITEMS, WIDTH = 12, 4


def naive(
    items: np.ndarray, scores: np.ndarray, window: list[int], decay: float, limit: int
) -> list[tuple[int, float]]:
    mass: dict[int, float] = {}
    for place, item in enumerate(window):
        for near, score in zip(items[item].tolist(), scores[item].tolist(), strict=True):
            if near >= 0:
                mass[near] = mass.get(near, 0.0) + decay**place * score
    return sorted(mass.items(), key=lambda one: (-one[1], one[0]))[:limit]


# Scores and decay are binary fractions, so sums are exact and ties are real ties.
tables = st.lists(
    st.lists(st.tuples(st.integers(-1, NUM_ITEMS - 1), st.integers(0, 4)), min_size=WIDTH, max_size=WIDTH),
    min_size=NUM_ITEMS,
    max_size=NUM_ITEMS,
)


@given(tables, st.lists(st.integers(0, NUM_ITEMS - 1), max_size=6), st.integers(1, 14))
def test_neighbours_are_the_naive_sum(table: list[list[tuple[int, int]]], window: list[int], limit: int) -> None:
    items = np.asarray([[near for near, _ in row] for row in table], np.int32)
    scores = np.asarray([[score / 4 for _, score in row] for row in table], np.float32)
    found = Neighbours(items, scores, decay=0.5, limit=limit).of(window)
    assert list(zip(*found, strict=True)) == naive(items, scores, window, 0.5, limit)


def test_the_release_gives_its_own_neighbours(release: Release) -> None:
    model, arrays = release.model, release.arrays
    window = [3, 3, 41, 0]
    items, scores = Neighbours.of_release(release).of(window)
    expected = naive(
        arrays["neighbour_items"], arrays["neighbour_scores"], window, model.neighbour_decay, model.neighbours
    )
    assert items == [item for item, _ in expected]
    np.testing.assert_allclose(scores, [score for _, score in expected], rtol=1e-5)


def test_no_window_has_no_neighbours(release: Release) -> None:
    assert Neighbours.of_release(release).of([]) == ([], [])
