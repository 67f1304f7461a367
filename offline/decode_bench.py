"""``./beforehand bench decode``: what the search costs with and without limits, on made-up items and weights."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from offline.export import export_graphs, graph_arrays, model_arrays
from offline.index.trie import category_sets, sid_order, trie_arrays
from offline.model.architecture import from_plan
from offline.model.generator import Generator
from offline.quality.cross import compare
from offline.quality.protocol import leave_one_out
from offline.quality.verb import RECIPE
from offline.samples import sample_inputs
from schemas import cli
from schemas.errors import DataError
from schemas.graphs import DECODER
from schemas.locations import state_dir
from schemas.plan import Plan, load_plan

Ints = NDArray[np.int64]
Feed = Mapping[str, NDArray[Any]]
WEIGHTS = [0.25, 1.0, 1.0, 0.02]
SKEW = 0.7
"""Some codes have many items and most few: the odds of the n-th are 1 / n ** SKEW."""
OTHER = 0.1
"""Share of items whose category is not that of the items around them."""
ROUNDS = 5
SMALL = 2_000
"""Items of the generator that is exported; the trie is an input."""
ABOUT = """
Decoding is timed on one thread. --compare trains the product's heads and a decoder with cross-attention over the
window's rows on a folder of items.parquet and sequences.parquet (some ten CPU-minutes; it goes on where it was
interrupted), and judges both."""


def run(args: argparse.Namespace) -> cli.Result:
    """Time one request at each of ``--items``, on one thread."""
    plan, result = load_plan(), {}
    if min(args.items) < SMALL or args.requests < 1:
        raise DataError("too few", where="--items, --requests", mend=f"Ask for {SMALL:,} items and 1 request at least.")
    with tempfile.TemporaryDirectory() as folder:
        with cli.step("graph"):
            arrays = _export(plan, Path(folder), args.categories)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(Path(folder) / DECODER, options, providers=["CPUExecutionProvider"])
        for num_items in args.items:
            with cli.step(f"{num_items:,} items") as made:
                shop = Shop(plan, num_items, args.categories, {**arrays})
                result[str(num_items)] = found = shop.measure(session, args.requests)
                made(f"{found['decode_cpu_ms']} ms, allow-list {found['allow_cpu_ms']} ms")
    if args.compare:
        result["decoders"] = _compared(args.compare, args.epochs, args.threads)
    return {"categories": args.categories, "requests": args.requests, **result}


def _compared(folder: Path, epochs: int, threads: int) -> dict[str, Any]:
    plan = load_plan(overrides=[*RECIPE, "model.seed=1", f"model.epochs={epochs}"])
    with cli.step("heads beside cross-attention"):
        found = compare(leave_one_out(folder, plan.model.window), plan, state_dir() / "decoders" / folder.name, threads)
    for name, one in found.items():
        got = one["seen_removed"]
        cli.say(f"  {name}: Recall@10 {got['recall_at_10']:.4f}, {one['mflop']} MFLOP, {one['state_bytes']:,} bytes")
    return found


class Shop:
    """Made-up items in the place of the exported generator's: its other arrays stay."""

    def __init__(self, plan: Plan, num_items: int, categories: int, arrays: dict[str, NDArray[Any]]) -> None:
        self.draw = np.random.default_rng(1)
        self.plan, self.num_items = plan, num_items
        codes = made_up(self.draw, num_items, plan.index.levels, plan.index.codes)
        self.category = _categories(self.draw, codes, categories, plan.index.codes)
        trie = trie_arrays(codes)
        self.arrays = {
            **arrays,
            **trie,
            **category_sets(trie["item_path"], self.category),
            "item_category": self.category,
            "item_out": self.draw.standard_normal((num_items, plan.model.width), np.float32),
            "item_bias": self.draw.standard_normal(num_items, np.float32),
        }

    def measure(self, session: onnxruntime.InferenceSession, requests: int) -> dict[str, float]:
        """CPU-milliseconds of a request, the median: without limits, with 50 and 1,000 exclusions, with one category;
        and how many of ``k_max`` places are filled from the narrowest categories that could fill them."""
        k_max = self.plan.online.k_max
        names = {given.name for given in session.get_inputs()}
        bound = {name: array for name, array in self.arrays.items() if name in names}
        sets = [name for name in bound if name.startswith("set_") or name == "category_sets"]
        counts = np.bincount(self.category)
        narrow = np.flatnonzero(counts >= k_max)[np.argsort(counts[counts >= k_max])][:requests]
        kinds: dict[str, list[Feed]] = {
            "decode": [self._request() for _ in range(requests)],
            "exclude_50": [self._request(exclude=self._seen(50)) for _ in range(requests)],
            "exclude_1000": [self._request(exclude=self._seen(1000)) for _ in range(requests)],
            "allow": [self._request(allow=np.array([[one]])) for one in narrow],
        }
        result: dict[str, float] = {}
        for kind, feeds in kinds.items():
            took, filled = [], []
            for _ in range(ROUNDS):
                for feed in feeds:
                    begun = time.process_time()
                    item = np.asarray(session.run(None, {**feed, **bound})[0])
                    took.append(time.process_time() - begun)
                    filled.append(float((item >= 0).mean()))
            result[f"{kind}_cpu_ms"] = round(float(np.median(took)) * 1000, 3)
            result[f"{kind}_filled"] = round(float(np.mean(filled)), 4)
        return result | {"set_bytes": sum(bound[name].nbytes for name in sets), "narrowest": int(counts[narrow[0]])}

    def _request(self, exclude: Ints | None = None, allow: Ints | None = None) -> Feed:
        model, near = self.plan.model, self.plan.nearline.neighbours
        none = np.full((1, 1), -1, np.int64)
        return {
            "intent": self.draw.standard_normal((1, model.state_rows, model.width), np.float32),
            "prompt": self.draw.standard_normal((1, model.prompt_rows, model.width), np.float32),
            "neighbour_item": self.draw.integers(0, self.num_items, (1, near)),
            "neighbour_score": np.linspace(1, 0.1, near, dtype=np.float32)[None],
            "exclude": none if exclude is None else exclude,
            "allow": none if allow is None else allow,
            "weights": np.asarray(WEIGHTS, np.float32),
        }

    def _seen(self, count: int) -> Ints:
        """Items beside each other, as what a user has seen is."""
        first = self.draw.integers(0, self.num_items - count)
        return np.arange(first, first + count)[None]


def made_up(draw: np.random.Generator, num_items: int, levels: int, num_codes: int) -> Ints:
    """Distinct codes [N, L] in SID order, some prefixes with many items and most with few."""
    odds = 1 / np.arange(1, num_codes + 1) ** SKEW
    found = np.zeros(0, np.int64)
    while len(found) < num_items:
        drawn = draw.choice(num_codes, (num_items, levels), p=odds / odds.sum())
        # Another order of the codes below each prefix: not always the same are the large ones.
        for level in range(1, levels):
            drawn[:, level] = (drawn[:, level] + 37 * drawn[:, level - 1]) % num_codes
        flat = drawn @ (num_codes ** np.arange(levels - 1, -1, -1))
        found = np.union1d(found, flat)
    found = np.sort(draw.permutation(found)[:num_items])
    codes = np.stack(np.unravel_index(found, (num_codes,) * levels), axis=1).astype(np.int64)
    assert (sid_order(codes) == np.arange(num_items)).all()
    return codes


def _categories(draw: np.random.Generator, codes: Ints, categories: int, num_codes: int) -> Ints:
    """Mostly those of the first two codes."""
    like = (codes[:, 0] * num_codes + codes[:, 1]) // 4 * 7919 % categories
    return np.where(draw.random(len(codes)) < OTHER, draw.integers(0, categories, len(codes)), like)


def _export(plan: Plan, folder: Path, categories: int) -> dict[str, NDArray[Any]]:
    torch.manual_seed(1)
    draw = np.random.default_rng(1)
    codes = made_up(draw, SMALL, plan.index.levels, plan.index.codes)
    arch = from_plan(plan, num_items=SMALL, num_buckets=1, vector_width=8, codes=plan.index.codes)
    generator = Generator(arch, draw.standard_normal((SMALL, 8)), codes).eval()
    arrays = model_arrays(generator, trie_arrays(codes), np.zeros(SMALL, np.int64))
    near = plan.nearline.neighbours
    export_graphs(generator, arrays, sample_inputs(arch, codes, categories, neighbours=near, weights=WEIGHTS), folder)
    return {name: arrays[name] for name in graph_arrays(DECODER, arch.levels)}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The subject's options."""
    add = parser.add_argument
    add("subject", choices=["decode"])
    add("--items", type=int, nargs="+", default=[27_000, 1_000_000], help="how many (default: 27000 and 1000000)")
    add("--categories", type=int, default=1_000, help="of the items (default: %(default)s)")
    add("--compare", type=Path, metavar="FOLDER", help="train and judge both decoders on this data set too")
    add("--epochs", type=int, default=14, help="of that (default: %(default)s)")
    add("--threads", type=int, default=1, help="of that (default: %(default)s)")
    add("--requests", type=int, default=20, help="of each kind (default: %(default)s)")
