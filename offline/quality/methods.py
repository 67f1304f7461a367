"""The methods that are compared. Each gives lists for the test cases; what it can choose, it chooses on validation."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline.histories import Case
from offline.index.codes import build_codes
from offline.index.neighbours import (
    Neighbours,
    Settings,
    choose,
    make_links,
    nearest_items,
    neighbour_lists,
    recall_uncut,
    window_neighbours,
)
from offline.index.trie import sid_order, trie_arrays
from offline.index.vectors import item_vectors
from offline.index.words import word_matrix
from offline.model.architecture import from_plan
from offline.quality.protocol import Protocol
from offline.quality.sasrec import best_of_all, sasrec
from offline.recall import Recaller, choose_weights
from offline.train.fit import Material, Where, fit, no_neighbours
from schemas.plan import Plan

Lists = dict[str, NDArray[np.integer]]
KEPT, REMOVED = "seen_kept", "seen_removed"
MODES = {KEPT: True, REMOVED: False}
LONGEST = 50
JUDGED_BY = ("recall_at_10", "ndcg_at_10")
"""What the protocol reports is what choices on validation are made by, for every method."""
NEAREST = 10
ENOUGH = 6_000
"""Validation cases that the neighbours' settings are chosen on; the scores' weights are chosen on all."""


@dataclass(frozen=True)
class Run:
    """One run of a method: the plan (with the seed), a folder for checkpoints, threads."""

    protocol: Protocol
    plan: Plan
    folder: Path
    threads: int


@dataclass(frozen=True)
class Found:
    """Lists by mode, what was chosen on validation, and what training took."""

    lists: Lists
    chosen: dict[str, object]
    train_cpu_s: float = 0.0
    train_minutes: float = 0.0


def popularity(run: Run) -> dict[str, Found]:
    """The most taken items, the same for everybody."""
    order = np.argsort(-run.protocol.bought, kind="stable")
    lists: Lists = {}
    for mode, seen in MODES.items():
        rows = [order if seen else order[~np.isin(order, case.window)] for case in run.protocol.test]
        lists[mode] = np.stack([row[:LONGEST] for row in rows])
    return {"popularity": Found(lists, {})}


def item_knn_content(run: Run) -> dict[str, Found]:
    """Neighbours of the window's items by behaviour and content, scores uncut; settings chosen for each mode."""
    links = make_links(run.protocol.train, word_matrix(run.protocol.texts, run.protocol.labels), run.plan.model.window)
    lists: Lists = {}
    chosen: dict[str, object] = {}
    for mode, seen in MODES.items():
        settings = choose(links, run.protocol.validation[:ENOUGH], LONGEST, seen=seen, by=JUDGED_BY)
        lists[mode] = recall_uncut(links, settings, run.protocol.test, LONGEST, seen=seen)
        chosen[mode] = settings
    return {"item_knn_content": Found(lists, chosen)}


def sasrec_alone(run: Run) -> dict[str, Found]:
    """SASRec with the generator's encoder, over all items."""
    arch = from_plan(run.plan, num_items=run.protocol.num_items, num_buckets=1, vector_width=1, codes=1)
    begun, cpu = time.monotonic(), _cpu_s()
    model = sasrec(run.protocol, arch, run.plan.model, run.folder / "sasrec", run.threads)
    took = _cpu_s() - cpu, (time.monotonic() - begun) / 60
    lists: Lists = {mode: best_of_all(model, run.protocol.test, LONGEST, seen=seen) for mode, seen in MODES.items()}
    return {"sasrec": Found(lists, {}, *took)}


def generator(run: Run) -> dict[str, Found]:
    """The product's own code (vectors, codes, training, beam), with the window's neighbours and without.

    Two things differ from a build: the content is the words alone (a text encoder beside them did not help on
    validation), and the links between items are not cut to the largest.
    """
    plan = run.plan
    words = word_matrix(run.protocol.texts, run.protocol.labels)
    vectors, codes, num_codes = _index(run, words)
    order = sid_order(codes)
    protocol, vectors, codes = run.protocol.renumbered(order), vectors[order], codes[order]
    arch = from_plan(
        plan,
        num_items=protocol.num_items,
        num_buckets=len(protocol.buckets.names),
        vector_width=vectors.shape[1],
        codes=num_codes,
    )
    material = Material(
        vectors,
        codes,
        trie_arrays(codes),
        nearest_items(vectors, NEAREST),
        np.zeros(len(codes), np.int64),
        protocol.train,
        protocol.validation,
        protocol.buckets,
    )
    begun, cpu = time.monotonic(), _cpu_s()
    net, _ = fit(arch, material, plan.model, run.folder / "generator", Where(run.threads))
    took = _cpu_s() - cpu, (time.monotonic() - begun) / 60
    recaller = Recaller(net, material.trie, material.category)
    links = make_links(protocol.train, words[order], plan.model.window)
    with_near, alone = Found({}, {}, *took), Found({}, {}, *took)
    for mode, seen in MODES.items():
        settings = choose(links, protocol.validation[:ENOUGH], plan.nearline.neighbours, seen=seen, by=JUDGED_BY)
        lists = neighbour_lists(links, settings, plan.index.neighbours)
        for found, near in (
            (with_near, _near(lists, settings, plan)),
            (alone, lambda cases: no_neighbours(len(cases))),
        ):
            best, weights = _recalled(recaller, protocol, near, seen=seen)
            found.lists[mode] = np.where(best >= 0, order[np.maximum(best, 0)], -1)
            found.chosen[mode] = {"weights": weights}
        with_near.chosen[f"{mode}_neighbours"] = settings
    return {"generator": with_near, "generator_alone": alone}


def _index(run: Run, words: Any) -> tuple[NDArray[np.float32], NDArray[np.int64], int]:
    """Vectors and codes of the items, and how many codes a level has. Kept beside the checkpoint, whose weights know
    items by their codes: made again with another number of threads, they would differ by rounding, and with them
    some codes."""
    kept = run.folder / "index.npz"
    if not kept.exists():
        plan = run.plan
        vectors = item_vectors(run.protocol.train, [words], plan.index.vector_width, plan.model.seed)
        book = build_codes(vectors, plan.index.levels, plan.index.codes, plan.model.seed, plan.index.method)
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_name(f".{kept.name}")
        np.savez(draft, vectors=vectors, codes=book.codes, num_codes=book.num_codes)
        draft.replace(kept)
    with np.load(kept) as index:
        return index["vectors"], index["codes"], int(index["num_codes"])


METHODS: dict[str, Callable[[Run], dict[str, Found]]] = {
    "popularity": popularity,
    "item_knn_content": item_knn_content,
    "sasrec": sasrec_alone,
    "generator": generator,
}
SEEDED = ("sasrec", "generator")
"""The others give the same whatever the seed."""


def _near(lists: Neighbours, settings: Settings, plan: Plan) -> Callable[[list[Case]], Neighbours]:
    keep = plan.nearline.neighbours
    return lambda cases: window_neighbours(cases, lists, settings.decay, keep, repeats=settings.repeats)


def _recalled(
    recaller: Recaller, protocol: Protocol, near: Callable[[list[Case]], Neighbours], *, seen: bool
) -> tuple[NDArray[np.int64], list[float]]:
    """Choose the weights on validation, then make the test's lists, once: item numbers [cases, 50]."""
    some = protocol.validation
    weights, _ = choose_weights(recaller.candidates(some, near(some), seen=seen), some, JUDGED_BY)
    found = recaller.candidates(protocol.test, near(protocol.test), seen=seen)
    return recaller.lists(found, weights)[:, :LONGEST], weights


def _cpu_s() -> float:
    """Of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
