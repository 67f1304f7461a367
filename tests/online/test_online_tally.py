"""What is counted on the hot path comes out as Prometheus would have counted it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from test_online_service import Shelf, ask, make  # noqa: F401 - a fixture

from online.tally import BUCKETS_S, Histograms
from schemas.names import Rung


@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.floats(0, 2), st.sampled_from(BUCKETS_S))), max_size=40))
def test_histograms_are_those_of_the_library(observed):
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    mine = Histograms("x_seconds", "about", "stage", ours)
    plain = Histogram("x_seconds", "about", ["stage"], buckets=BUCKETS_S, registry=theirs)
    for stage, seconds in observed:
        mine.of(stage).observe(seconds)
        plain.labels(stage).observe(seconds)
    for stage in {stage for stage, _ in observed}:
        for bound in [*map(str, BUCKETS_S), "+Inf"]:
            labels = {"stage": stage, "le": bound}
            assert ours.get_sample_value("x_seconds_bucket", labels) == theirs.get_sample_value(
                "x_seconds_bucket", labels
            )
        for name in ("x_seconds_count", "x_seconds_sum"):
            got, want = (each.get_sample_value(name, {"stage": stage}) for each in (ours, theirs))
            assert math.isclose(got, want)


def test_counters_are_whole_whenever_they_are_read(make, release):  # noqa: F811
    recall = make(Shelf())
    read = recall.metrics.registry.get_sample_value
    labels = {"rung": Rung.GENERATE, "release": release.id}
    for number in (1, 2):
        ask(recall)
        assert recall.metrics.registry.get_sample_value("beforehand_answers_total", labels) == number
    assert read("beforehand_cache_total", {"by": "redis"}) == 2
    assert read("beforehand_assets_total", {"asset": "intent_state", "state": "MISSING", "reason": "no_state"}) == 2


def test_lists_ready_to_be_sent_are_the_lists(make, release):  # noqa: F811
    recall = make(Shelf())
    recall._ladder = [Rung.COHORT]
    for user_id in ("u3", "u3", "u2"):
        bucket = release.profiles.users[user_id]
        response = ask(recall, user_id=user_id, k=7)
        want = release.arrays["cohort_items"][bucket][:7].tolist()
        assert [release.item_numbers[item.item_id] for item in response.items] == want
    assert len(ask(recall, user_id="u3", k=3).items) == 3
