"""Codebooks of both kinds: unique codes, their use told, what collapsed refused; enough room for everybody."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.index import rqvae
from offline.index.codes import KMEANS, RQVAE, build_codes
from offline.index.room import spread
from offline.index.rows import first_of_equal, num_distinct
from offline.index.usage import LevelUse, level_use, refuse_collapse
from schemas.errors import DataError

METHODS = (KMEANS, RQVAE)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(rqvae, "MIN_STEPS", 60)
    monkeypatch.setattr(rqvae, "EPOCHS", 4)


def clustered(num, width, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((24, width))
    return (centres[rng.integers(0, 24, num)] + rng.standard_normal((num, width)) * 0.3).astype(np.float32)


@pytest.mark.parametrize("method", METHODS)
def test_codes_are_unique_and_their_use_is_told(method):
    book = build_codes(clustered(1500, 16), levels=3, codes=32, seed=1, method=method)
    assert len(np.unique(book.codes, axis=0)) == 1500
    assert book.centroids.shape[:2] == (3, 32)
    assert [level.possible for level in book.levels] == [32] * 3
    assert [level.unique for level in book.levels] == sorted(level.unique for level in book.levels)
    for level in book.levels:
        assert 0 < level.entropy_bits <= 5
        assert level.used > 16


@pytest.mark.parametrize("method", METHODS)
def test_equal_inputs_give_equal_codes(method):
    first, second = (build_codes(clustered(300, 8), 3, 16, seed=4, method=method).codes for _ in range(2))
    assert first.tolist() == second.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_the_codes_say_where_an_item_is(method):
    """The centroids of an item's codes add up to (the latent of) its vector, much nearer than the mean does."""
    vectors = clustered(1500, 16)
    book = build_codes(vectors, levels=3, codes=32, seed=1, method=method)
    rows = book.encoder(vectors) if book.encoder else vectors
    said = sum(book.centroids[level][book.codes[:, level]] for level in range(3))
    assert ((rows - said) ** 2).sum() < 0.5 * ((rows - rows.mean(0)) ** 2).sum()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_four_levels_of_1024_codes_from_512_wide_vectors(method):
    book = build_codes(clustered(4000, 512), levels=4, codes=1024, seed=1, method=method)
    assert book.codes.shape == (4000, 4)
    assert book.num_codes == 1024
    assert len(np.unique(book.codes, axis=0)) == 4000


@pytest.mark.parametrize("method", METHODS)
def test_six_rows_with_two_vectors_and_four_clusters(method):
    vectors = np.repeat(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), 3, axis=0)
    book = build_codes(vectors, levels=3, codes=4, seed=1, method=method)
    assert len(np.unique(book.codes, axis=0)) == 6
    assert np.isfinite(book.centroids).all()


def test_a_diverged_training_is_refused(monkeypatch):
    monkeypatch.setattr(rqvae, "RATE", 1e30)
    vectors = clustered(200, 8)
    with pytest.raises(DataError, match="diverged"):
        build_codes(vectors, levels=2, codes=16, seed=1, method=RQVAE)


def test_a_collapsed_codebook_is_refused_with_its_level():
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, 32, 1000), np.where(rng.random(1000) < 0.995, 7, rng.integers(0, 32, 1000))], 1)
    uses = [level_use(codes, level, 32, np.arange(1000)) for level in range(2)]
    with pytest.raises(DataError, match=r"level 1 of 2.*collapsed"):
        refuse_collapse(uses)
    refuse_collapse(uses[:1])
    with pytest.raises(DataError, match="less than 50%"):
        refuse_collapse([LevelUse(used=3, possible=32, entropy_bits=1.5, spread=0.9, unique=0.1)])


def test_a_level_is_judged_by_the_items_that_still_need_it():
    """Two thousand items are alone after the first level; the second tells the last two apart: no collapse."""
    first = np.r_[np.arange(2000), 2000, 2000]
    codes = np.stack([first, np.r_[np.zeros(2001, np.int64), 1]], axis=1)
    use = level_use(codes, 1, 4096, np.arange(2002))
    assert (use.used, use.possible, use.unique) == (2, 2, 1.0)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1)), min_size=1, max_size=60))
def test_distinct_rows_against_numpy(pairs):
    rows = np.array(pairs, np.float32)
    rows[rows == 0] *= np.float32(-1) if len(pairs) % 2 else np.float32(1)
    distinct, first = np.unique(rows + 0, axis=0, return_index=True)
    assert first_of_equal(rows).tolist() == sorted(first)
    assert num_distinct(rows, 100) == len(distinct)
    assert num_distinct(rows, 2) == min(2, len(distinct))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=1, max_size=12), st.integers(0, 99))
def test_last_codes_are_spread_at_the_least_distance(chosen, seed):
    """Against every way to give the members of a prefix different codes."""
    import itertools

    rng = np.random.default_rng(seed)
    codes = np.array([pair for number, pair in enumerate(chosen) if sum(p[0] == pair[0] for p in chosen[:number]) < 4])
    rest, centroids = rng.standard_normal((len(codes), 2)), rng.standard_normal((6, 2))
    codes[:, 1] = ((rest[:, None] - centroids) ** 2).sum(-1).argmin(1)
    best = 0.0
    for prefix in set(codes[:, 0].tolist()):
        cost = ((rest[codes[:, 0] == prefix][:, None] - centroids) ** 2).sum(-1)
        ways = itertools.permutations(range(6), len(cost))
        best += min(sum(cost[row, code] for row, code in enumerate(way)) for way in ways)
    spread(codes, rest, centroids)
    assert len(np.unique(codes, axis=0)) == len(codes)
    assert ((rest - centroids[codes[:, 1]]) ** 2).sum() == pytest.approx(best)
