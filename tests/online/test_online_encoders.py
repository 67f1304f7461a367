"""The encoders that only measure: the same numbers as training, and features as the contract says."""

from __future__ import annotations

import numpy as np
import pytest
from online_values import KEY, NOW_MS

from online.encoders import intent_feed, neighbours, prompt_feed
from online.release import load_encoders
from schemas.graphs import clock_feature, gap_feature
from schemas.release import read_manifest


@pytest.fixture(scope="session")
def encoders(release):
    return load_encoders(release, read_manifest(release.folder, KEY))


def test_the_encoders_give_the_numbers_of_training(encoders, expected):
    for graph, name, output in zip(
        encoders, ("intent_encoder.onnx", "prompt_encoder.onnx"), ("last_row", "prompt"), strict=True
    ):
        inputs = expected[name]["inputs"]
        kinds = {"gap": np.float32, "clock": np.float32, "age": np.float32}
        values = graph.run({key: np.array(value, kinds.get(key, np.int64)) for key, value in inputs.items()})[0]
        got = values[:, -1] if output == "last_row" else values
        assert np.abs(got - np.array(expected[name]["outputs"][output])).max() < 1e-4


def test_a_window_is_turned_oldest_first_and_padded_left(release):
    feed = intent_feed(release.model, [7, 3], [4, 2], [7_200_000, 3_600_000])
    assert feed["item"].tolist() == [[0, 0, 0, 0, 0, 0, 4, 8]]
    assert feed["kind"].tolist() == [[0, 0, 0, 0, 0, 0, 2, 4]]
    assert feed["gap"][0, -2:] == pytest.approx([0.0, gap_feature(3_600_000)])
    assert (intent_feed(release.model, [], [], [])["item"] == 0).all()


def test_only_the_newest_local_events_are_seen(release):
    codes = release.arrays["item_codes"]
    local = [(number, 1, NOW_MS - 1000 * (10 - number)) for number in range(6)]
    feed = prompt_feed(release.model, codes, 2, NOW_MS, local)
    assert feed["codes"][0].tolist() == codes[[2, 3, 4, 5]].tolist()
    assert feed["age"][0, -1] == pytest.approx(gap_feature(5000))
    assert feed["clock"][0] == pytest.approx(clock_feature(NOW_MS))
    assert (prompt_feed(release.model, codes, 0, NOW_MS, [])["codes"] == -1).all()


def test_neighbours_are_the_weighted_sum_over_the_window(release):
    near_items, near_scores = release.arrays["neighbour_items"], release.arrays["neighbour_scores"]
    window = [4, 9, 4, 51]
    sums: dict[int, float] = {}
    for place, item in enumerate(window):
        for number, score in zip(near_items[item].tolist(), near_scores[item].tolist(), strict=True):
            if number >= 0:
                sums[number] = sums.get(number, 0.0) + score * release.model.neighbour_decay**place
    item, score = neighbours(release.model, near_items, near_scores, window)
    best = sorted(sums.values(), reverse=True)[: release.model.neighbours]
    assert score[0, : len(best)] == pytest.approx(best, rel=1e-5)
    assert all(
        sums[number] == pytest.approx(s, rel=1e-5) for number, s in zip(item[0], score[0], strict=True) if number >= 0
    )
