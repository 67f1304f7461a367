"""The constrained beam: exact where it is wide enough, safe everywhere."""

import numpy as np
import pytest
import torch
from helpers_offline import arrays_for, generator_for, naive_scores, request_for
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.index.trie import sid_order
from offline.model.beam import IMPOSSIBLE, best, first_of_each, split
from offline.model.limits import Limits

CODE = st.integers(0, 3)
CATALOGUES = st.sets(st.tuples(CODE, CODE, CODE), min_size=1, max_size=30)


def in_order(paths) -> np.ndarray:
    codes = np.array(sorted(paths), np.int64)
    return codes[sid_order(codes)]


def decode(generator, request, category=None):
    with torch.no_grad():
        item, score = generator.beam(*request, *arrays_for(generator, category))
    assert torch.isfinite(score).all()
    return item.tolist(), score.tolist()


@settings(max_examples=40)
@given(paths=CATALOGUES, seed=st.integers(0, 1000), data=st.data())
def test_a_wide_beam_equals_scoring_every_item(paths, seed, data):
    codes = in_order(paths)
    some = st.lists(st.integers(0, len(codes) - 1), max_size=4, unique=True)
    near = [row + [-1] * (4 - len(row)) for row in data.draw(st.tuples(some, some))]
    generator = generator_for(codes, seed=seed)
    request = request_for(generator, seed=seed, near=near)
    items, scores = decode(generator, request)
    for row in range(2):
        naive = naive_scores(generator, request, row)
        assert sorted(i for i in items[row] if i >= 0) == list(range(len(codes)))
        assert scores[row][: len(codes)] == pytest.approx(sorted(naive, reverse=True), abs=1e-4)
        for item, score in zip(items[row], scores[row], strict=True):
            if item >= 0:
                assert score == pytest.approx(naive[item], abs=1e-4)


def test_a_prefix_leads_only_to_items_that_have_it():
    codes = np.array([[1, 2, 3], [8, 2, 9]])
    generator = generator_for(codes, num_codes=10)
    items, _ = decode(generator, request_for(generator))
    assert [sorted(i for i in row if i >= 0) for row in items] == [[0, 1], [0, 1]]


def test_three_items_and_fifty_places():
    generator = generator_for(np.array([[0, 0, 0], [0, 1, 0], [3, 2, 1]]))
    items, _ = decode(generator, request_for(generator))
    assert all(sorted(row[:3]) == [0, 1, 2] and set(row[3:]) == {-1} and len(row) == 50 for row in items)


def test_everything_excluded_is_empty_and_finite():
    generator = generator_for(np.array([[0, 0, 0], [0, 1, 0], [3, 2, 1]]))
    request = request_for(generator, near=[[0, 1], [2, -1]])._replace(exclude=torch.tensor([[0, 1, 2], [0, 1, 2]]))
    items, _ = decode(generator, request)
    assert items == [[-1] * 50] * 2


def test_excluded_items_take_no_place_in_the_beam():
    codes = in_order({(a, b, c) for a in range(4) for b in range(4) for c in range(4)})
    generator = generator_for(codes, k_max=10)
    request = request_for(generator, batch=1)
    first, _ = decode(generator, request)
    second, _ = decode(generator, request._replace(exclude=torch.tensor([first[0]])))
    assert -1 not in second[0]
    assert not set(first[0]) & set(second[0])


def test_the_item_head_chooses_among_more_items_than_the_answer_holds():
    codes = in_order({(a, b, c) for a in range(4) for b in range(4) for c in range(4)})
    generator = generator_for(codes, k_max=5)
    request = request_for(generator, batch=1)
    by_codes, _ = decode(generator, request._replace(weights=torch.tensor([1.0, 0.0, 0.0, 1.0])))
    with torch.no_grad():
        generator.item_bias += 100.0
        generator.item_bias[by_codes[0]] -= 100.0
    items, _ = decode(generator, request._replace(weights=torch.tensor([1.0, 1.0, 0.0, 1.0])))
    assert -1 not in items[0]
    assert not set(items[0]) & set(by_codes[0])


def test_an_exclusion_beyond_the_catalogue_is_ignored():
    generator = generator_for(np.array([[0, 0, 0], [0, 1, 0]]))
    request = request_for(generator)
    assert decode(generator, request._replace(exclude=torch.tensor([[99], [99]]))) == decode(generator, request)


def test_only_the_allowed_categories():
    codes = in_order({(a, b, 0) for a in range(4) for b in range(4)})
    category = np.arange(len(codes)) % 3
    generator = generator_for(codes)
    near = list(range(6))
    request = request_for(generator, near=[near, near])._replace(allow=torch.tensor([[1, -1], [-1, -1]]))
    items, _ = decode(generator, request, category)
    assert {int(category[i]) for i in items[0] if i >= 0} == {1}
    assert {int(category[i]) for i in items[1] if i >= 0} == {0, 1, 2}


@settings(max_examples=40)
@given(paths=CATALOGUES, num_categories=st.sampled_from([3, 70, 200]), seed=st.integers(0, 1000), data=st.data())
def test_below_which_nodes_something_may_be_shown(paths, num_categories, seed, data):
    codes = in_order(paths)
    category = np.random.default_rng(seed).integers(0, num_categories, len(codes))
    numbers = st.lists(st.integers(-1, len(codes) + 1), min_size=4, max_size=4)
    some = st.lists(st.sampled_from([-1, *set(category.tolist()), num_categories + 500]), min_size=2, max_size=2)
    exclude, allow = data.draw(st.tuples(numbers, numbers)), data.draw(st.tuples(some, some))
    levels, items, sets = split(arrays_for(generator_for(codes), category))
    limits = Limits(torch.tensor(exclude), torch.tensor(allow), [level.offset for level in levels], items, sets)
    for depth in range(3):
        prefixes = sorted({tuple(path[: depth + 1]) for path in codes.tolist()})
        child = torch.arange(len(prefixes)).expand(2, -1)
        score = torch.zeros(child.shape)
        got = (limits.leaves(child, score) if depth == 2 else limits.nodes(depth, child, score)) > IMPOSSIBLE
        for row in range(2):
            wanted = {number for number in allow[row] if number >= 0}
            for prefix, may in zip(prefixes, got[row].tolist(), strict=True):
                below = [n for n, path in enumerate(codes.tolist()) if tuple(path[: depth + 1]) == prefix]
                shown = not wanted or any(category[n] in wanted for n in below)
                assert may == (shown and any(n not in exclude[row] for n in below))


@settings(max_examples=40)
@given(paths=CATALOGUES, seed=st.integers(0, 1000), data=st.data())
def test_a_wide_beam_within_limits_equals_scoring_every_item_that_may_be_shown(paths, seed, data):
    codes = in_order(paths)
    category = np.random.default_rng(seed).integers(0, 3, len(codes))
    generator = generator_for(codes, seed=seed)
    exclude = data.draw(st.lists(st.integers(-1, len(codes)), min_size=3, max_size=3))
    allow = data.draw(st.lists(st.integers(-1, 4), min_size=2, max_size=2))
    request = request_for(generator, batch=1, seed=seed, near=[list(range(min(3, len(codes))))])
    request = request._replace(exclude=torch.tensor([exclude]), allow=torch.tensor([allow]))
    items, scores = decode(generator, request, category)
    wanted = {number for number in allow if number >= 0}
    may = [n for n in range(len(codes)) if n not in exclude and (not wanted or category[n] in wanted)]
    assert sorted(item for item in items[0] if item >= 0) == may
    naive = naive_scores(generator, request, 0)
    assert scores[0][: len(may)] == pytest.approx(sorted((naive[n] for n in may), reverse=True), abs=1e-4)


def test_a_narrow_category_fills_the_list():
    """One item in 64 is allowed, each below another node: a beam that hears of it at the last level finds few."""
    codes = in_order({(a, b, c) for a in range(8) for b in range(8) for c in range(8)})
    category = (codes.sum(1) % 8 == 0).astype(np.int64) * (codes[:, 0] == codes[:, 1])
    generator = generator_for(codes, num_codes=8, k_max=8)
    request = request_for(generator, batch=1)._replace(allow=torch.tensor([[1]]))
    items, _ = decode(generator, request, category)
    assert sorted(items[0]) == np.flatnonzero(category).tolist()


def test_prefixes_of_excluded_items_alone_take_no_place():
    codes = in_order({(a, b, 0) for a in range(4) for b in range(4)})
    generator = generator_for(codes, k_max=4)
    request = request_for(generator, batch=1)
    first, _ = decode(generator, request)
    second, _ = decode(generator, request._replace(exclude=torch.tensor([first[0]])))
    assert len(set(second[0]) - {-1}) == 4
    assert not set(first[0]) & set(second[0])


def test_neighbours_join_though_the_beam_is_too_narrow_to_find_them():
    codes = in_order({(a, b, c) for a in range(4) for b in range(4) for c in range(4)})
    generator = generator_for(codes, k_max=5)
    alone, _ = decode(generator, request_for(generator, batch=1))
    missed = next(i for i in range(len(codes)) if i not in alone[0])
    request = request_for(generator, batch=1, near=[[missed, missed, alone[0][0]]])
    request = request._replace(weights=torch.tensor([0.0, 0.0, 1.0, 0.01]))
    items, _ = decode(generator, request)
    assert set(items[0][:2]) == {missed, alone[0][0]}
    assert len(set(items[0])) == len(items[0])


def test_alone_and_in_a_batch():
    codes = in_order({(a, b, c) for a in range(4) for b in range(3) for c in range(2)})
    generator = generator_for(codes)
    request = request_for(generator, batch=50)
    items, scores = decode(generator, request)
    for row in range(50):
        one = type(request)(*(part if part.dim() == 1 else part[row : row + 1] for part in request))
        got, score = decode(generator, one)
        assert got[0] == items[row]
        assert score[0] == pytest.approx(scores[row], abs=1e-4)


def test_equal_scores_come_in_the_order_of_item_numbers():
    item = torch.tensor([[5, 2, 9, 1]])
    got, _ = best(item, torch.tensor([[1.0, 2.0, 1.0, 1.0]]), 4)
    assert got.tolist() == [[2, 1, 5, 9]]


def test_the_order_does_not_depend_on_a_constant_in_the_logits():
    codes = in_order({(a, b, 0) for a in range(4) for b in range(4)})
    generator = generator_for(codes)
    before, _ = decode(generator, request_for(generator))
    with torch.no_grad():
        for head in generator.decoder.heads:
            head.out.bias += 30.0
    assert decode(generator, request_for(generator))[0] == before


def test_a_floor_of_zero_gives_no_nan():
    generator = generator_for(np.array([[0, 0, 0], [0, 1, 0]]))
    items, _ = decode(generator, request_for(generator)._replace(weights=torch.tensor([1.0, 1.0, 0.0, 0.0])))
    assert sorted(items[0][:2]) == [0, 1]


def test_repeated_neighbours_count_once():
    assert first_of_each(torch.tensor([[3, 3, 1, 3]])).tolist() == [[True, False, True, False]]


def test_a_neighbour_that_the_beam_has_not_found_is_as_likely_as_its_last_leaf():
    codes = in_order({(a, b, c) for a in range(4) for b in range(4) for c in range(4)})
    generator = generator_for(codes, k_max=5)
    alone = request_for(generator, batch=1)
    with torch.no_grad():
        item, path, _, _ = generator.beam.candidates(alone, arrays_for(generator))
        leaves = dict(zip(item[0, :10].tolist(), path[0, :10].tolist(), strict=True))
        found, other = next(iter(leaves)), next(n for n in range(len(codes)) if n not in leaves)
        withdrawn = len(codes) + 3
        near = request_for(generator, batch=1, near=[[found, other, withdrawn, -1]])
        item, path, _, _ = generator.beam.candidates(
            near._replace(intent=alone.intent, prompt=alone.prompt), arrays_for(generator)
        )
    assert item[0, 10:12].tolist() == [found, other]
    assert path[0, 10].item() == leaves[found]
    assert path[0, 11].item() == min(leaves.values())
    assert (path[0, 12:] <= IMPOSSIBLE).all(), "withdrawn since the list was made, and padding"
    assert path[0, item[0, :10].tolist().index(found)].item() <= IMPOSSIBLE, "each item once"
