"""What answers look like, against plain counting; and what costs a request nothing."""

from __future__ import annotations

import asyncio
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_values import NOW_MS, long, make_state, until_true
from prometheus_client import CollectorRegistry
from test_online_service import Shelf

from online.model_metrics import LAST, MAX_WAITING, QUANTILES, ModelMetrics, Seen, diversity, shared, usual_score
from online.service import Recall
from schemas.api import Item, RecallRequest
from schemas.names import Rung

NAME = "beforehand_model_"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def drain(made: ModelMetrics) -> None:
    """What its thread does, one after the other."""
    while made.look():
        pass


def listed(release, numbers, score=1.0) -> list[Item]:
    return release.items(np.array(numbers), np.full(len(numbers), score, np.float32))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_diversity_counts_pairs(codes):
    pairs = list(combinations(codes, 2))
    assert diversity(codes) == pytest.approx(sum(a != b for a, b in pairs) / len(pairs) if pairs else 1.0)


@given(st.lists(st.integers(0, 9), min_size=1, unique=True), st.lists(st.integers(-1, 9), unique=True))
def test_shared_counts_members(numbers, others):
    expected = len({*numbers} & {*others}) / len(numbers)
    assert shared(np.array(numbers), np.array(others, np.int64)) == pytest.approx(expected)


def test_the_list_for_everybody_has_no_novelty_and_the_buckets_own_all_overlap(registry, release):
    made = ModelMetrics(registry, every=1)
    own = release.cohorts.row(1)[0]
    popular = release.cohorts.row(0)[0]
    made.offer(release, Rung.POPULAR, 0, listed(release, popular[popular >= 0][:5]))
    made.offer(release, Rung.GENERATE, 1, listed(release, own[own >= 0][:5]))
    assert registry.get_sample_value(f"{NAME}novelty_count", {"rung": "popular", "release": release.id}) is None
    drain(made)
    assert registry.get_sample_value(f"{NAME}novelty_sum", {"rung": "popular", "release": release.id}) == 0
    assert registry.get_sample_value(f"{NAME}beam_overlap_sum", {"rung": "generate", "release": release.id}) == 1
    assert registry.get_sample_value(f"{NAME}beam_overlap_sum", {"rung": "popular", "release": release.id}) is None


def test_coverage_forgets_old_answers(registry, release):
    made = ModelMetrics(registry, every=1)
    num_items = release.model.num_items
    made.offer(release, Rung.COHORT, 0, listed(release, [0, 1, 2]))
    drain(made)
    coverage = f"{NAME}coverage"
    assert registry.get_sample_value(coverage, {"release": release.id}) == pytest.approx(3 / num_items)
    for _ in range(LAST):
        made.offer(release, Rung.COHORT, 0, listed(release, [2]))
        drain(made)
    assert registry.get_sample_value(coverage, {"release": release.id}) == pytest.approx(1 / num_items)


def test_drift_is_told_in_deviations(registry, release):
    made = ModelMetrics(registry, every=1)
    mean, deviation = usual_score(release)
    assert deviation > 0
    for score in (mean, mean + 4 * deviation):
        made.offer(release, Rung.GENERATE, 1, listed(release, [0, 1], score))
    made.offer(release, Rung.COHORT, 1, listed(release, [0, 1], 1e6))
    drain(made)
    assert registry.get_sample_value(f"{NAME}score_drift", {"release": release.id}) == pytest.approx(2, abs=1e-3)
    assert Seen(np.zeros(1), (0.0, 0.0)).drift is None


def test_the_scores_quantiles_are_those_of_the_generated_answers(registry, release):
    made = ModelMetrics(registry, every=1)
    scores = [3.0, 1.0, 2.0, 5.0, 4.0]
    for score in scores:
        made.offer(release, Rung.GENERATE, 1, listed(release, [0, 1], score))
    made.offer(release, Rung.COHORT, 1, listed(release, [0, 1], 1e6))
    assert registry.get_sample_value(f"{NAME}score", {"release": release.id, "quantile": "0.5"}) is None
    drain(made)
    for quantile in QUANTILES:
        found = registry.get_sample_value(f"{NAME}score", {"release": release.id, "quantile": str(quantile)})
        assert found == pytest.approx(np.quantile(scores, quantile))


def test_one_in_so_many_is_looked_at_and_a_crowd_is_bounded(registry, release):
    made = ModelMetrics(registry, every=3)
    for _ in range(3 * (MAX_WAITING + 10)):
        made.offer(release, Rung.COHORT, 0, listed(release, [0]))
    made.offer(release, Rung.NONE, 0, [])
    drain(made)
    labels = {"rung": "cohort", "release": release.id}
    assert registry.get_sample_value(f"{NAME}diversity_count", labels) == MAX_WAITING


def test_the_service_offers_its_answers(plan, releases, release):
    recall = Recall(plan, Shelf(make_state(release)), releases, now_ms=lambda: NOW_MS)
    recall.model_metrics = ModelMetrics(CollectorRegistry(), every=1)
    asyncio.run(recall.answer(RecallRequest(user_id="u1", k=10), long()))
    recall.decoder.close()
    drain(recall.model_metrics)
    (family,) = [f for f in recall.model_metrics.collect() if f.name == f"{NAME}diversity"]
    assert {tuple(sample.labels.values()) for sample in family.samples} == {("generate", release.id)}


def test_its_thread_looks_at_all_that_comes(registry, release, monkeypatch):
    monkeypatch.setattr("online.model_metrics.EVERY_S", 0.01)
    made = ModelMetrics(registry, every=1)
    made.start()
    for _ in range(5):
        made.offer(release, Rung.POPULAR, 0, listed(release, [1, 2, 3]))
    labels = {"rung": "popular", "release": release.id}
    until_true(lambda: registry.get_sample_value(f"{NAME}diversity_count", labels) == 5)
    made.stop()
