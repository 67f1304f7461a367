"""New items: nobody else's semantic ID changes, and they get the codes that the rule says."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.index.flat import build
from offline.index.insert import Inserter, insert
from offline.index.trie import sid_order, trie_arrays
from schemas.errors import DataError

LEVELS, CODES = 3, 3


def naive(taken, centroids, vector):
    """The first free ID of all, in the stated order: every level's nearest code first, later levels change first."""

    def paths(path, rest):
        if len(path) == LEVELS:
            yield path
            return
        distance = ((centroids[len(path)] - rest) ** 2).sum(1)
        for code in np.argsort(distance, kind="stable"):
            yield from paths((*path, int(code)), rest - centroids[len(path)][code])

    return next(path for path in paths((), vector) if path not in taken)


EVERY = list(itertools.product(range(CODES), repeat=LEVELS))


@settings(max_examples=80)
@given(st.sets(st.sampled_from(EVERY), min_size=1, max_size=24), st.integers(0, 10_000), st.integers(1, 3))
def test_inserting_against_the_rule_and_a_trie_built_anew(there, seed, num_new):
    rng = np.random.default_rng(seed)
    centroids = rng.standard_normal((LEVELS, CODES, 2)).astype(np.float32)
    vectors = rng.standard_normal((num_new, 2)).astype(np.float32)
    codes = np.array(sorted(there), np.int64)
    taken, expected = set(there), []
    for vector in vectors.astype(np.float64):
        expected.append(naive(taken, centroids.astype(np.float64), vector))
        taken.add(expected[-1])
    grown = insert(codes, centroids, vectors)
    assert [tuple(row) for row in grown.codes[grown.new].tolist()] == expected
    assert grown.codes[grown.old].tolist() == codes.tolist()
    again = trie_arrays(np.array(sorted(taken), np.int64))
    trie = grown.trie()
    assert trie.keys() == again.keys()
    assert all(trie[name].tolist() == again[name].tolist() for name in again)


def test_one_after_the_other_is_as_all_at_once():
    rng = np.random.default_rng(3)
    centroids, vectors = rng.standard_normal((3, 4, 2)), rng.standard_normal((12, 2)).astype(np.float32)
    codes = np.array([[0, 0, 0]])
    together = Inserter(codes, centroids)
    first, second = together.insert(vectors[:5]), together.insert(vectors[5:])
    assert np.r_[first, second].tolist() == Inserter(codes, centroids).insert(vectors).tolist()


def test_a_full_index_takes_nothing_more():
    codes = np.array(list(itertools.product(range(2), repeat=2)))
    with pytest.raises(DataError, match=r"taken.*got 4"):
        insert(codes, np.zeros((2, 2, 1), np.float32), np.zeros((1, 1), np.float32))


def test_the_new_row_that_is_not_a_number_is_named():
    with pytest.raises(DataError, match="row 1"):
        insert(np.array([[0, 0]]), np.zeros((2, 2, 1), np.float32), np.array([[0.0], [np.inf]], np.float32))


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(EVERY), st.text(max_size=4), min_size=1), st.lists(st.integers(0, 3), max_size=3)
)
def test_prefixes_and_ids_against_a_list(catalogue, prefix):
    items = [(path, f"{name}{path}") for path, name in catalogue.items()]
    index, order = build(np.array([path for path, _ in items]), [name for _, name in items])
    ordered = sorted(items)
    assert [items[place] for place in order] == ordered
    wanted = [number for number, (path, _) in enumerate(ordered) if list(path[: len(prefix)]) == prefix]
    assert list(index.under(prefix)) == wanted
    following = {ordered[number][0][len(prefix)] for number in wanted} if len(prefix) < LEVELS else set()
    assert index.children(prefix).tolist() == sorted(following)
    assert [index.number_of(name) for _, name in ordered] == list(range(len(ordered)))
    assert [index.item_id(number) for number in range(len(index))] == [name for _, name in ordered]
    assert index.number_of("nobody") is None


def test_the_index_is_read_from_its_files(tmp_path):
    codes = np.array([[1, 2], [0, 1], [1, 0]])
    index, _ = build(codes, ["绿茶", "tea 🍵", ""])
    num_bytes = index.write(tmp_path)
    mapped = type(index).open(tmp_path)
    assert num_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert isinstance(mapped.codes, np.memmap)
    assert mapped.number_of("绿茶") == 2
    assert [mapped.item_id(number) for number in mapped.under([1])] == ["", "绿茶"]
    assert sid_order(codes).tolist() == [1, 2, 0]


def test_an_id_that_comes_twice_is_named():
    with pytest.raises(DataError, match=r"twice.*'a'"):
        build(np.array([[0, 1], [0, 0], [1, 1]]), ["a", "b", "a"])
