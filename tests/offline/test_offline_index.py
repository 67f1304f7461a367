"""Codes, trie and neighbour lists."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.histories import Case, Histories
from offline.index import nearest
from offline.index.codes import build_codes
from offline.index.links import content_links, together, transitions
from offline.index.neighbours import (
    AFTER,
    FOLLOW,
    TOGETHER,
    Neighbours,
    Settings,
    choose,
    make_links,
    nearest_items,
    neighbour_lists,
    recall_uncut,
    top_of_rows,
    window_neighbours,
)
from offline.index.trie import sid_order, trie_arrays
from offline.index.vectors import check_finite, item_vectors
from offline.index.words import word_matrix, words
from schemas.errors import DataError


def unique(codes):
    return len(np.unique(codes, axis=0)) == len(codes)


def test_few_distinct_vectors_give_fewer_codes_and_no_nan():
    vectors = np.repeat(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), 3, axis=0)
    book = build_codes(vectors, levels=3, codes=4, seed=1)
    assert unique(book.codes)
    assert book.num_codes == 2


def test_fewer_items_than_codes():
    rng = np.random.default_rng(0)
    book = build_codes(rng.standard_normal((111, 8)).astype(np.float32), levels=3, codes=256, seed=1)
    assert unique(book.codes)
    assert book.num_codes <= 111
    assert book.codes.max() < book.num_codes


def test_identical_items_get_different_ids():
    vectors = np.ones((20, 4), np.float32)
    book = build_codes(vectors, levels=2, codes=5, seed=1)
    assert unique(book.codes)


def test_a_prefix_that_is_too_full_overflows_into_others():
    rng = np.random.default_rng(0)
    crowd = np.tile(rng.standard_normal(6), (75, 1))
    others = rng.standard_normal((40, 6)) * 5
    book = build_codes(np.concatenate([crowd, others]).astype(np.float32), levels=3, codes=16, seed=1)
    assert unique(book.codes)
    assert book.moved == 75 - 16
    assert book.codes.max() < 16


def test_more_items_than_ids_is_refused():
    with pytest.raises(DataError, match="more items than semantic IDs"):
        build_codes(np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32), levels=2, codes=3, seed=1)


def test_the_row_that_is_not_a_number_is_named():
    vectors = np.zeros((1000, 3), np.float32)
    vectors[417, 1] = np.nan
    with pytest.raises(DataError, match="row 417"):
        check_finite(vectors, "vectors")
    with pytest.raises(DataError, match="row 417"):
        build_codes(vectors, levels=2, codes=40, seed=1)


@settings(max_examples=50)
@given(st.sets(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=40))
def test_the_trie_holds_every_item_once(paths):
    codes = np.array(sorted(paths), np.int64)
    trie = trie_arrays(codes[sid_order(codes)])
    for number, path in enumerate(sorted(paths)):
        node = 0
        for level, code in enumerate(path):
            assert trie["item_path"][number, level] == node
            begin, end = trie[f"offset_{level}"][node : node + 2]
            children = trie[f"child_{level}"][begin:end].tolist()
            assert children == sorted({p[level] for p in paths if p[:level] == path[:level]})
            assert len(children) <= len(trie[f"fan_{level}"])
            node = begin + children.index(code)
        assert node == number


def test_two_items_with_one_id_are_refused():
    with pytest.raises(DataError, match="unique"):
        trie_arrays(np.array([[0, 1], [0, 1]]))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 5), max_size=8), st.integers(0, 100))
def test_window_neighbours_against_their_definition(window, seed):
    rng = np.random.default_rng(seed)
    items = np.stack([rng.permutation(6)[:3] for _ in range(6)]).astype(np.int32)
    scores = np.sort(rng.uniform(0.1, 1, (6, 3)).astype(np.float32), axis=1)[:, ::-1]
    expected: dict[int, float] = {}
    for ago, item in enumerate(reversed(window)):
        for near, score in zip(items[item].tolist(), scores[item].tolist(), strict=True):
            expected[near] = expected.get(near, 0.0) + 0.9**ago * score
    best = sorted(expected, key=lambda i: (-round(expected[i], 5), i))[:4]
    none = np.zeros(0, np.int64)
    case = Case("u", 0, 0, np.array(window, np.int64), none, none, none, [])
    got = window_neighbours([case], Neighbours(items, scores), 0.9, 4)
    found = [i for i in got.items[0].tolist() if i >= 0]
    assert len(found) == len(best)
    assert [expected[i] for i in found] == pytest.approx([expected[i] for i in best], abs=1e-4)
    assert got.scores[0][: len(best)].tolist() == pytest.approx([expected[i] for i in best], abs=1e-4)


def test_equal_scores_in_a_row_go_by_item_number():
    got = top_of_rows(sp.csr_matrix(np.array([[0.5, 0.0, 1.0, 0.5, 0.5]])), 3)
    assert got.items.tolist() == [[2, 0, 3]]


def test_transitions_count_what_followed_a_window():
    # One user: session (0, 1), then session (2), then session (0).
    histories = Histories(
        ["u"], np.array([0, 4]), np.array([0, 1, 2, 0]), np.full(4, 4), np.arange(4), np.array([0, 0, 1, 2])
    )
    follow = transitions(histories, 3, window=2).toarray()
    assert (follow[0] > 0).tolist() == [False, False, True]
    # The last session's window holds the two newest events only: items 1 and 2.
    assert (follow[1] > 0).tolist() == [True, False, True]
    assert (follow[2] > 0).tolist() == [True, False, False]


def one_user(items):
    count = len(items)
    return Histories(
        ["u"], np.array([0, count]), np.array(items), np.full(count, 4), np.arange(count), np.arange(count)
    )


@settings(max_examples=30)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=14))
def test_together_against_its_definition(items):
    expected = np.zeros((5, 5))
    for i, one in enumerate(items):
        for j in range(i):
            if items[j] != one and i - j <= 10:
                expected[items[j], one] += (i - j) ** -0.5
                expected[one, items[j]] += 0.6 * (i - j) ** -0.5
    bought = np.maximum(np.bincount(items, minlength=5), 1)
    got = together(one_user(items), 5).toarray()
    assert got == pytest.approx(expected * (bought**-0.3)[:, None], abs=1e-5)


@settings(max_examples=30)
@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=4), min_size=12, max_size=24), st.integers(1, 3))
def test_content_links_are_the_largest_cosines_of_rare_words(texts, keep):
    matrix = word_matrix([" ".join(text) for text in texts], [()] * len(texts))
    common = np.asarray((matrix > 0).mean(axis=0)).ravel() > max(0.1, 2 / len(texts))
    dense = matrix.toarray()
    dense[:, common] = 0
    cosine = dense @ dense.T
    np.fill_diagonal(cosine, 0)
    got = content_links(matrix, keep).toarray()
    for row in range(len(texts)):
        best = np.sort(cosine[row])[::-1][:keep]
        assert np.sort(got[row])[::-1][:keep] == pytest.approx(best, abs=1e-5)
        assert got[row] == pytest.approx(np.where(got[row] > 0, cosine[row], 0), abs=1e-5)


def test_words_of_a_text():
    assert words("Tea-pot, 2 CUPS") == ["tea", "pot", "2", "cups"]
    assert words("绿茶杯 100g") == ["绿茶", "茶杯", "100g"]
    assert words("") == []


def test_a_brand_is_one_word_and_items_without_words_are_zero():
    matrix = word_matrix(["", "red cup", "cup"], [(), ("Ann & Co",), ("Ann & Co",)])
    assert matrix[0].nnz == 0
    assert matrix[1].nnz == 3
    assert np.asarray(matrix.multiply(matrix).sum(1)).ravel()[1:] == pytest.approx([1, 1], abs=1e-6)


def links_of(histories, num_items):
    return make_links(histories, word_matrix([f"word{n // 2}" for n in range(num_items)], [()] * num_items), 8)


def test_after_looks_one_way_together_both():
    kinds = links_of(one_user([0, 1, 2]), 3).kinds
    assert (kinds[AFTER].toarray() > 0).tolist() == [[False, True, True], [False, False, True], [False] * 3]
    assert (kinds[TOGETHER].toarray() > 0).tolist() == [[False, True, True], [True, False, True], [True, True, False]]


def test_of_behaviour_only_the_largest_links_are_kept():
    histories, words_ = one_user([0, 1, 2, 3]), word_matrix([""] * 4, [()] * 4)
    assert make_links(histories, words_, 8, 1).kinds[AFTER][0].nonzero()[1].tolist() == [1]


def test_an_item_that_nobody_took_has_links_lent_by_its_like():
    links = links_of(one_user([2, 0, 2, 0]), 4)  # items 2 and 3 share a word
    alone, lent = (neighbour_lists(links, Settings(AFTER, lent=share), 4) for share in (0.0, 0.3))
    assert 0 not in alone.items[3]
    assert 0 in lent.items[3]
    assert lent.items[2].tolist()[:1] == alone.items[2].tolist()[:1] == [0]


def case(window, target):
    none = np.zeros(0, np.int64)
    return Case("u", 0, 0, np.array(window, np.int64), none, none, np.array(target, np.int64), [])


def test_lists_that_are_not_cut_give_what_is_uncut():
    histories = one_user([0, 1, 2, 0, 3, 1, 4, 2, 5, 0])
    links, cases = links_of(histories, 6), [case([0, 3], [1]), case([5], [0]), case([], [2])]
    for settings_ in (
        Settings(),
        Settings(repeats=False),
        Settings(FOLLOW, 0.2, 0.1, 4.0, 0.9),
        Settings(AFTER, lent=0.3),
    ):
        lists = neighbour_lists(links, settings_, 6)
        cut = window_neighbours(cases, lists, settings_.decay, 6, repeats=settings_.repeats)
        assert cut.items.tolist() == recall_uncut(links, settings_, cases, 6).tolist()


def test_a_window_never_neighbours_itself_when_repeats_are_off():
    links = links_of(one_user([0, 1, 0, 1, 2, 0]), 3)
    cases = [case([0, 1], [2])]
    assert {0, 1} & set(recall_uncut(links, Settings(), cases, 3)[0].tolist())
    assert not {0, 1} & set(recall_uncut(links, Settings(repeats=False), cases, 3)[0].tolist())
    assert not {0, 1} & set(recall_uncut(links, Settings(), cases, 3, seen=False)[0].tolist())


def test_the_choice_follows_validation():
    # Everybody takes everything twice: a method without repeats finds none of it.
    histories = one_user([n // 2 for n in range(160)])
    links = links_of(histories, 80)
    again = [case([n], [n]) for n in range(0, 80, 3)]
    chosen = choose(links, again, 10)
    assert chosen.own > 0
    assert chosen.repeats
    assert all(n in row for n, row in zip(range(0, 80, 3), recall_uncut(links, chosen, again, 10), strict=True))


def test_nearest_items_leave_the_item_itself_out_also_among_equals():
    vectors = np.array([[1, 0], [1, 0], [0, 1], [0.1, 1]], np.float32)
    near = nearest_items(vectors, 2)
    assert near[0].tolist()[0] == 1
    assert near[2].tolist()[0] == 3
    assert all(row not in near[row] for row in range(4))
    assert nearest_items(vectors[:1], 2).tolist() == [[0, 0]]


def test_nearest_items_by_an_inverted_file_are_nearly_the_exact_ones(monkeypatch):
    vectors = np.random.default_rng(0).standard_normal((3_000, 4)).astype(np.float32)
    exact = nearest_items(vectors, 10)
    monkeypatch.setattr(nearest, "EXACT_UP_TO", 100)
    quick = nearest_items(vectors, 10)
    assert not (quick == np.arange(3_000)[:, None]).any()
    kept = np.mean([len(set(a) & set(b)) for a, b in zip(exact.tolist(), quick.tolist(), strict=True)])
    assert kept > 9


def test_an_item_that_nobody_took_has_content_only():
    vectors = item_vectors(one_user([0, 1, 2, 0, 1]), [word_matrix(["a b", "b c", "c d", "d a"], [()] * 4)], 4, 0)
    assert not vectors[3, :2].any()
    assert vectors[3, 2:].any()


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_the_top_of_a_row_is_what_a_sort_of_all_gives(keep, seed):
    rng = np.random.default_rng(seed)
    dense = rng.integers(0, 4, (5, 9)) * (rng.random((5, 9)) < 0.7)
    got = top_of_rows(sp.csr_matrix(dense.astype(np.float32)), keep)
    for row, items in zip(dense, got.items, strict=True):
        best = sorted((item for item in range(9) if row[item] > 0), key=lambda item: (-row[item], item))[:keep]
        assert items.tolist() == best + [-1] * (keep - len(best))
