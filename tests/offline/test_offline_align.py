"""Alignment: which pairs there are, what the loss moves, and when it is kept."""

import math

import numpy as np
import pytest
import torch
from helpers_offline import architecture, generator_for
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.histories import Buckets, Case, Histories
from offline.index.trie import trie_arrays
from offline.train import align as rule
from offline.train.align import align, preference_loss
from offline.train.examples import Examples
from offline.train.fit import Material, Where, fit, validation_value
from offline.train.losses import Losses
from offline.train.pairs import PER_WINNER, find_pairs
from schemas.plan import load_plan

NUM_ITEMS, WINDOW, HOUR = 24, 6, 3_600_000
SHOWN, CLICKED, CART, BOUGHT = 1, 2, 3, 4
CODES = np.array([[n // 8, n // 4 % 2, n % 4] for n in range(NUM_ITEMS)])


def histories(users):
    """``users``: of each its sessions, of each its events (item, kind)."""
    events = [(item, kind) for user in users for session in user for item, kind in session]
    lengths = [sum(map(len, user)) for user in users]
    item, kind = (np.array([event[n] for event in events], np.int64) for n in (0, 1))
    sizes = np.array([len(session) for user in users for session in user], np.int64)
    session = np.repeat(np.arange(len(sizes)), sizes)
    at = np.arange(len(events)) * HOUR
    start = np.r_[0, np.cumsum(lengths)].astype(np.int64)
    return Histories([f"u{n}" for n in range(len(users))], start, item, kind, at, session)


def pairs_of(*users, window=WINDOW):
    found = find_pairs(histories(users), window)
    return list(zip(found.place.tolist(), found.winner.tolist(), found.loser.tolist(), strict=True))


@pytest.mark.parametrize(
    ("sessions", "pairs"),
    [
        ([[(7, CLICKED), (1, CLICKED), (1, BOUGHT)]], [(2, 1, 7)]),
        ([[(7, SHOWN), (1, SHOWN), (1, CLICKED)]], [(2, 1, 7)]),
        ([[(7, SHOWN), (1, BOUGHT)]], []),  # never clicked: not what it was chosen over
        ([[(7, CLICKED), (7, CART), (1, BOUGHT)]], []),
        ([[(1, CLICKED), (7, SHOWN)]], []),  # the history begins with it
        ([[(7, CLICKED)], [(1, BOUGHT)]], []),  # another session
        ([[(7, CLICKED), (1, BOUGHT)], [(7, BOUGHT)]], []),  # only put off
        ([[(7, CLICKED), (1, BOUGHT)], [(7, CLICKED)]], [(1, 1, 7)]),
        ([[(7, CLICKED), (1, BOUGHT)], [(2, CLICKED)] * WINDOW, [(7, BOUGHT)]], [(1, 1, 7)]),  # past the window
        ([[(7, CLICKED), (7, BOUGHT), (1, BOUGHT)]], []),
    ],
)
def test_who_beats_whom(sessions, pairs):
    assert pairs_of(sessions) == pairs


def test_another_users_later_purchase_does_not_count_and_losers_are_few():
    one = [[(7, CLICKED), (1, BOUGHT)]]
    assert pairs_of(one, [[(7, BOUGHT)]]) == [(1, 1, 7)]
    many = [[*((n, CLICKED) for n in range(2, 12)), (1, BOUGHT)]]
    assert [loser for _, _, loser in pairs_of(many)] == [11, 10, 9, 8]
    assert len(pairs_of(many)) == PER_WINNER
    assert len(find_pairs(histories([]), WINDOW)) == 0


EVENT = st.tuples(st.integers(0, 5), st.integers(1, 4))
SESSIONS = st.lists(st.lists(EVENT, min_size=1, max_size=6), min_size=1, max_size=5)


@settings(max_examples=150)
@given(st.lists(SESSIONS, min_size=1, max_size=3))
def test_pairs_hold_what_a_naive_reading_of_the_rule_says(users):
    every = histories(users)
    pairs = find_pairs(every, WINDOW)
    wanted = set()
    for user in range(len(users)):
        low, high = every.start[user], every.start[user + 1]
        for number in np.unique(every.session[low:high]):
            places = np.flatnonzero(every.session == number)
            top = {i: max(every.kind[p] for p in places if every.item[p] == i) for i in every.item[places]}
            after = range(places[-1] + 1, min(places[-1] + 1 + WINDOW, high))
            for winner, loser in ((w, o) for w in top for o in top):
                chosen = (top[winner], top[loser]) in {(BOUGHT, CLICKED), (CLICKED, SHOWN)}
                later = any(every.item[p] == loser and every.kind[p] > top[loser] for p in after)
                first = min(p for p in places if every.item[p] == winner and every.kind[p] == top[winner])
                if chosen and not later and first > low:
                    wanted.add((first, winner, loser))
    found = set(zip(pairs.place.tolist(), pairs.winner.tolist(), pairs.loser.tolist(), strict=True))
    assert len(found) == len(pairs)
    assert found <= wanted
    by_winner = [sum(one[0] == place for one in found) for place in {one[0] for one in wanted}]
    assert by_winner == [min(PER_WINNER, sum(o[0] == place for o in wanted)) for place in {o[0] for o in wanted}]


def losses_of(generator):
    return Losses(generator, trie_arrays(CODES), np.zeros((NUM_ITEMS, 10), np.int64), 2_048)


def test_codes_that_both_share_get_no_gradient():
    generator = generator_for(CODES)
    losses, reference = losses_of(generator), generator_for(CODES).decoder
    query = torch.randn(2, 8)
    winner, loser = torch.tensor([0, 13]), torch.tensor([5, 9])  # codes 0,0,0 over 0,1,1 and 1,1,1 over 1,0,1
    preference_loss(losses, reference, query, winner, loser).backward()
    heads = generator.decoder.heads
    moved = [max((float(p.grad.abs().max()) for p in h.parameters() if p.grad is not None), default=0) for h in heads]
    assert moved[0] == 0.0
    assert min(moved[1:]) > 0.0
    query.requires_grad_()
    preference_loss(losses, reference, query, torch.tensor([3, 3]), torch.tensor([3, 3])).backward()
    assert query.grad is not None
    assert float(query.grad.abs().max()) == 0.0


def test_the_loss_is_the_published_formula():
    generator, other = generator_for(CODES, seed=1), generator_for(CODES, seed=2)
    losses = losses_of(generator)
    query = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    winner, loser = torch.tensor([0, 13, 20]), torch.tensor([5, 9, 2])

    def path(decoder, row, item):
        return losses.log_chances(query[row : row + 1], item[row : row + 1], decoder).sum()

    with torch.no_grad():
        got = float(preference_loss(losses, other.decoder, query, winner, loser))
        wanted = 0.0
        for row in range(3):
            gap = path(generator.decoder, row, winner) - path(generator.decoder, row, loser)
            before = path(other.decoder, row, winner) - path(other.decoder, row, loser)
            wanted += math.log1p(math.exp(-rule.BETA * float(gap - before))) / 3
        assert got == pytest.approx(wanted, rel=1e-4)
        at_start = float(preference_loss(losses, generator.decoder, query, winner, loser))
    assert at_start == pytest.approx(math.log(2))


def choosy(users=40, sessions=6):
    """Users who click at items of both kinds, and buy those of the first eight numbers."""
    rng = np.random.default_rng(0)
    return histories(
        [
            [
                [(int(w), CLICKED), *((int(o) + 8, CLICKED) for o in rng.permutation(8)[:3]), (int(w), BOUGHT)]
                for w in rng.integers(8, size=sessions)
            ]
            for _ in range(users)
        ]
    )


def material(targets, every=None):
    none = np.zeros(0, np.int64)
    window = (np.array([20, 21]), np.array([2, 2]), np.array([0, HOUR]))
    cases = [Case(f"v{n}", 0, 10 * HOUR, *window, np.array([n]), []) for n in targets]
    cases.append(Case("new", 0, 0, none, none, none, np.array([targets[0]]), []))
    vectors = np.random.default_rng(0).standard_normal((NUM_ITEMS, 5)).astype(np.float32)
    return Material(
        vectors,
        CODES,
        trie_arrays(CODES),
        np.zeros((NUM_ITEMS, 10), np.int64),
        np.zeros(NUM_ITEMS, np.int64),
        every or choosy(),
        cases,
        Buckets(["everybody"], {}),
    )


def aligned(of, monkeypatch):
    monkeypatch.setattr(rule, "BATCH", 16)
    monkeypatch.setattr(rule, "LEARNING_RATE", 1e-2)
    generator = generator_for(CODES)
    before = {name: tensor.clone() for name, tensor in generator.state_dict().items()}
    examples = Examples(of.train, of.buckets, WINDOW, 3)
    got = align(losses_of(generator), examples, lambda one: validation_value(one, of), seed=1)
    return got, before, generator.state_dict(), validation_value(generator, of)


def test_it_is_kept_where_it_helps_and_moves_the_code_heads_only(monkeypatch):
    got, before, after, value = aligned(material(range(8)), monkeypatch)
    assert got.outcome == "kept"
    assert got.pairs == 720
    assert max(got.values) > got.values[0] + 0.1
    assert value == pytest.approx(max(got.values), abs=1e-4)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all(name.startswith("decoder.heads.") for name in moved)


def test_it_is_rejected_where_it_hurts_and_leaves_every_weight(monkeypatch):
    got, before, after, value = aligned(material(range(8, 16)), monkeypatch)
    assert got.outcome == "not kept"
    assert max(got.values) == got.values[0]
    assert value == pytest.approx(got.values[0], abs=1e-4)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_too_few_pairs_change_nothing(monkeypatch):
    got, before, after, _ = aligned(material(range(8), choosy(users=5)), monkeypatch)
    assert (got.outcome, got.pairs, got.values) == ("no pairs", 90, [])
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("asked", "outcome"), [("true", {"kept", "not kept"}), ("false", {"off"})])
def test_training_aligns_when_the_plan_says_so(tmp_path, asked, outcome):
    sets = ["model.epochs=1", "model.batch_size=64", f"model.window={WINDOW}", "model.local_events=3"]
    plan = load_plan(overrides=[*sets, f"model.align={asked}"])
    _, progress = fit(architecture(NUM_ITEMS), material(range(8)), plan.model, tmp_path, Where(1))
    assert progress.aligned.outcome in outcome
