"""Training: what a target may see, equal bits, resuming, several processes."""

import itertools
import math
import shutil

import numpy as np
import pytest
import torch
from helpers_offline import architecture
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn
from torch.optim.swa_utils import AveragedModel

from offline.build.stage import Build
from offline.build.stages import NAMES, run_build
from offline.histories import Buckets, Case, Histories
from offline.index.neighbours import nearest_items
from offline.index.trie import trie_arrays
from offline.model.generator import Generator
from offline.train.cold import lift_cold
from offline.train.examples import Examples
from offline.train.fit import Material, Where, fit
from offline.train.losses import Losses
from offline.train.ranks import Ranks
from offline.train.trainer import WEIGHTS, Trainer, _nearer
from schemas.plan import load_plan

NUM_ITEMS, WINDOW = 24, 6
HOUR = 3_600_000


def shop(lengths, session=3):
    """Users who walk round the items, each from a place of its own; three events a session."""
    item, at, sessions = [], [], []
    for user, length in enumerate(lengths):
        place = np.arange(length)
        item.append((user * 5 + place) % NUM_ITEMS)
        at.append(place * HOUR + 1_750_000_000_000)
        sessions.append(place // session + 1_000 * user)
    start = np.r_[0, np.cumsum(lengths)].astype(np.int64)
    _, number = np.unique(np.concatenate(sessions), return_inverse=True)
    total = int(start[-1])
    users = [f"u{n}" for n in range(len(lengths))]
    return Histories(users, start, np.concatenate(item), np.full(total, 4), np.concatenate(at), number)


def material(histories, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.array([[n // 8, n // 4 % 2, n % 4] for n in range(NUM_ITEMS)])
    vectors = rng.standard_normal((NUM_ITEMS, 5)).astype(np.float32)
    none = np.zeros(0, np.int64)
    cases = [
        Case(f"v{n}", 0, 10 * HOUR, np.array([n]), np.array([4]), np.array([HOUR]), np.array([(n + 1) % NUM_ITEMS]), [])
        for n in range(NUM_ITEMS)
    ]
    cases.append(Case("new", 0, 0, none, none, none, np.array([3]), []))
    return Material(
        vectors,
        codes,
        trie_arrays(codes),
        nearest_items(vectors, 10),
        np.zeros(NUM_ITEMS, np.int64),
        histories,
        cases,
        Buckets(["everybody"], {}),
    )


PLAN = load_plan(overrides=["model.epochs=3", "model.batch_size=64", f"model.window={WINDOW}", "model.local_events=3"])


def fitted(folder, plan=PLAN, histories=None):
    arch = architecture(NUM_ITEMS, codes=4)
    return fit(arch, material(histories or shop([12, 9, 30, 2, 1, 17])), plan.model, folder, Where(1))


@settings(max_examples=60)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 1_000))
def test_a_target_sees_only_what_came_before_it(lengths, seed):
    histories = shop(lengths)
    examples = Examples(histories, Buckets(["everybody"], {}), WINDOW, 3)
    rng = np.random.default_rng(seed)
    for batch in examples.epoch(4, 1_000, rng) if examples.num_windows else ():
        assert batch.item.shape[1] <= WINDOW
        for n, target in enumerate(batch.target.tolist()):
            row, window = int(batch.row[n]), batch.item[batch.window[n]].tolist()
            # A user walks on by one: what came before a target is a smaller place of its walk.
            seen = [item - 1 for item in window[: row + 1] if item > 0]
            local = [item for item in batch.local_item[n].tolist() if item >= 0]
            walk = [*seen, *local, target]
            steps = [(after - before) % NUM_ITEMS for before, after in itertools.pairwise(walk)]
            assert all(step >= 1 for step in steps)
            assert len(local) <= 3
            if row >= 0:
                assert window[row] > 0


def test_every_event_but_the_first_becomes_a_target():
    histories = shop([5, 3])
    examples = Examples(histories, Buckets(["everybody"], {}), WINDOW, 3)
    assert examples.num_windows == 2
    found = sorted(int(t) for batch in examples.epoch(2, 10, np.random.default_rng(0)) for t in batch.target)
    assert found == sorted([1, 2, 3, 4, 6, 7])


def test_the_same_inputs_give_the_same_bits(tmp_path):
    first, _ = fitted(tmp_path / "a")
    second, _ = fitted(tmp_path / "b")
    other, _ = fitted(tmp_path / "c", _seeded(2))
    ours, theirs = first.state_dict(), second.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not torch.equal(ours["item_bias"], other.state_dict()["item_bias"])


def _seeded(seed):
    return load_plan(
        overrides=[
            "model.epochs=3",
            "model.batch_size=64",
            f"model.window={WINDOW}",
            "model.local_events=3",
            f"model.seed={seed}",
        ]
    )


class KilledError(Exception):
    """The end of a process, for a test."""


def test_a_training_that_was_killed_ends_in_the_same_bits(tmp_path, monkeypatch):
    whole, _ = fitted(tmp_path / "whole")
    judge = Trainer._judge

    def die(self, progress, checkpoint, mean):
        if progress.epoch == 1:
            raise KilledError
        judge(self, progress, checkpoint, mean)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(Trainer, "_judge", die)
        fitted(tmp_path / "cut")
    resumed, progress = fitted(tmp_path / "cut")
    assert progress.epoch == 3
    ours, theirs = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_training_ends_with_the_lift(tmp_path):
    histories = shop([8, 8])  # items 0 … 12
    generator, _ = fitted(tmp_path, histories=histories)
    cold = np.bincount(histories.item, minlength=NUM_ITEMS) == 0
    assert cold.any()
    assert not generator.free.weight[cold].any()
    assert generator.item_bias[cold].unique().numel() == 1


def test_what_is_kept_is_the_mean_of_the_last_steps(tmp_path):
    fitted(tmp_path, load_plan(overrides=["model.epochs=1", "model.batch_size=16", f"model.window={WINDOW}"]))
    best, mean, last = (load_file(tmp_path / name) for name in (f"best-{WEIGHTS}", f"mean-{WEIGHTS}", WEIGHTS))
    assert torch.equal(best["item_bias"], mean["item_bias"])
    assert not torch.equal(best["item_bias"], last["item_bias"])


def test_the_mean_reaches_back_a_tenth_of_the_steps_then_a_hundred():
    mean, naive = AveragedModel(nn.Linear(1, 1, bias=False), avg_fn=_nearer), 0.0
    network = nn.Linear(1, 1, bias=False)
    for step in range(1_500):
        nn.init.constant_(network.weight, float(value := step % 7))
        mean.n_averaged.fill_(step)
        mean.update_parameters(network)
        share = 1 / min(100, step / 10 + 1)
        naive = (1 - share) * naive + share * value
    assert mean.module.weight.item() == pytest.approx(naive, abs=1e-3)


def test_items_that_nobody_took_are_lifted_until_it_costs_something():
    generator = Generator(architecture(NUM_ITEMS), np.ones((NUM_ITEMS, 5)), np.zeros((NUM_ITEMS, 3)))
    bought = np.r_[0, 0, np.ones(NUM_ITEMS - 2, np.int64)]
    worth = {0.0: 1.0, 1.0: 1.1, 2.0: 0.996, 3.0: 0.99, 4.0: 2.0}

    def value(some):
        level = some.item_bias[2:].mean()
        return worth[round(float(some.item_bias[0] - level), 3)]

    assert lift_cold(generator, bought, value) == 2.0
    assert generator.item_bias[:2].tolist() == [2.0, 2.0]
    assert not generator.free.weight[:2].any()
    assert generator.free.weight[2:].any()
    assert lift_cold(generator, np.ones(NUM_ITEMS), value) == 0.0


def test_a_target_is_told_apart_from_as_many_items_as_the_plan_says():
    histories = shop([60] * 3)
    m = material(histories)
    batch = Examples(histories, Buckets(["everybody"], {}), WINDOW, 3).batch(np.array([3]), np.random.default_rng(5))
    looked_at = []
    for negatives in (1, 10 * NUM_ITEMS):
        arch = architecture(NUM_ITEMS)
        losses = Losses(Generator(arch, m.vectors, m.codes), m.trie, m.nearest, negatives)
        query = torch.zeros(len(batch.target), arch.width)
        looked_at.append(len(losses.item_loss(query, batch.target, batch)[1]))
    assert looked_at[0] <= len(batch.target) + batch.item.shape[1] + 1 < NUM_ITEMS
    assert looked_at[1] == NUM_ITEMS


@pytest.mark.parametrize("negatives", [5, NUM_ITEMS])
def test_the_item_loss_is_a_softmax_over_the_window_and_what_was_drawn(negatives):
    m, arch = material(shop([4, 9, 14])), architecture(NUM_ITEMS)
    generator = Generator(arch, m.vectors, m.codes)
    torch.nn.init.normal_(generator.item_bias)
    batch = next(Examples(m.train, m.buckets, WINDOW, 3).epoch(3, 3, np.random.default_rng(0)))
    query = torch.randn(len(batch.target), arch.width)
    with torch.no_grad():
        torch.manual_seed(7)
        loss, _, _ = Losses(generator, m.trie, m.nearest, negatives).item_loss(query, batch.target, batch)
        torch.manual_seed(7)
        drawn = torch.randperm(NUM_ITEMS)[:negatives].tolist()
        scores = generator.decoder.item_query(query) @ generator.item_out().T + generator.item_bias
    total = 0.0
    for row, target in enumerate(batch.target.tolist()):
        seen = batch.item[batch.window[row]][: max(0, int(batch.row[row]) + 1)] - 1
        window = {item for item in seen.tolist() if item not in (-1, target)}
        weight = dict.fromkeys(window, 1.0)
        for item in drawn:
            if item != target:
                weight[item] = weight.get(item, 0.0) + NUM_ITEMS / negatives
        weight[target] = 1.0
        whole = sum(times * math.exp(scores[row, item]) for item, times in weight.items())
        total += math.log(whole) - float(scores[row, target])
    assert float(loss) == pytest.approx(total / len(batch.target), abs=1e-4)


def test_training_learns(tmp_path):
    histories = shop([60] * 30)
    untrained, _ = fitted(
        tmp_path / "a", load_plan(overrides=["model.epochs=1", "model.learning_rate=1e-9"]), histories
    )
    trained, progress = fitted(tmp_path / "b", _longer(), histories)
    batch = next(Examples(histories, Buckets(["everybody"], {}), WINDOW, 3).epoch(12, 12, np.random.default_rng(5)))

    def loss(generator):
        m = material(histories)
        torch.manual_seed(0)
        with torch.no_grad():
            return float(Losses(generator.eval(), m.trie, m.nearest, 2_048)(batch))

    assert loss(trained) < loss(untrained) - 0.8
    assert progress.epoch > 1


def _longer():
    return load_plan(
        overrides=["model.epochs=12", "model.batch_size=64", f"model.window={WINDOW}", "model.local_events=3"]
    )


def test_gradients_of_several_processes_are_averaged(monkeypatch):
    one, two = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1, 2))
    one.grad = torch.tensor([2.0, 4.0])  # the other process has the same
    monkeypatch.setattr("torch.distributed.all_reduce", lambda flat: flat.mul_(2))
    Ranks(0, 2).average([one, two])
    assert one.grad.tolist() == [2.0, 4.0]
    assert two.grad is not None
    assert two.grad.tolist() == [[0.0, 0.0]]


def test_processes_share_an_epoch_without_overlap():
    shares = [list(Ranks(rank, 3).share(range(11), 3)) for rank in range(3)]
    assert sorted(itertools.chain(*shares)) == list(range(9))
    assert {len(share) for share in shares} == {3}


@pytest.mark.slow
def test_two_processes_train_one_generator(tmp_path):
    from test_offline_build import make_shop

    def evaluated(**how):
        build = Build(made.name, made.plan, **how)
        for stage in NAMES[: NAMES.index("evaluate") + 1]:  # what comes after is the same for one process
            run_build(build, stage)
        return build

    made = make_shop(tmp_path)
    alone = evaluated().records
    pair = evaluated(force=True, threads=2, processes=2)
    assert pair.records["train"].result["parameters"] == alone["train"].result["parameters"]
    assert pair.records["evaluate"].result["metrics"]["recall_at_10"] > 0.3
    weights = (pair.folder("train") / "weights.safetensors").read_bytes()
    assert not list((pair.work / "train").glob("checkpoint-*"))
    again = evaluated(force=True, threads=2, processes=2)
    assert (again.folder("train") / "weights.safetensors").read_bytes() == weights
    shutil.rmtree(again.work)


def test_a_batch_moves_to_a_device_whole():
    histories = shop([9])
    batch = next(Examples(histories, Buckets(["everybody"], {}), WINDOW, 3).epoch(1, 1, np.random.default_rng(0)))
    moved = batch.to("meta")
    assert {tensor.device.type for tensor in vars(moved).values()} == {"meta"}
