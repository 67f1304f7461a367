"""``python -m offline gain``: what the prompt adds to Recall@10 while the near-line tier lags behind.

The held-back baskets of Online Retail are replayed on a release's own graphs, as the tiers run them. A request comes
with the line at the middle of a basket; the rest of the basket is what is asked for. With a delay of d the state holds
no event of the last d: the device knows those, at most ``local_events`` of them. The same cases are answered from the
delayed state with the bucket's default prompt, from the delayed state with the device's prompt, and from the state
that has seen everything. Each request excludes what is in the basket already, as a shop's does: nobody takes it twice.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from offline.data.online_retail import read_online_retail
from offline.data.split import cut_time
from offline.histories import Case
from offline.index.neighbours import Neighbours, window_neighbours
from schemas import cli
from schemas.errors import DataError, ReleaseError
from schemas.graphs import DECODER, INTENT_ENCODER, PROMPT_ENCODER, clock_feature, decoder_arrays, gap_feature
from schemas.locations import public_key_path, releases_dir
from schemas.names import Kind
from schemas.release import (
    ARRAYS,
    CATALOGUE,
    PROFILES,
    UNKNOWN_BUCKET,
    Catalogue,
    Profiles,
    load_public_key,
    read_manifest,
    verify_files,
)

DELAYS_S = (1.0, 10.0, 60.0)
FIRST = 10
FEW = 20
BATCH = 32
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Asked(Case):
    """A case in the middle of a basket, and what lies in it (item numbers)."""

    basket: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


class Tiers:
    """A release's three graphs, its arrays and its names; one thread unless said otherwise."""

    def __init__(self, folder: Path, key: Path, threads: int = 1) -> None:
        import onnxruntime as ort  # noqa: PLC0415 - slow to import, and only this verb runs graphs

        manifest = read_manifest(folder, load_public_key(key))
        verify_files(folder, manifest)
        self.id, self.model = manifest.id, manifest.content.model
        self.item_ids = msgspec.msgpack.decode((folder / CATALOGUE).read_bytes(), type=Catalogue).item_ids
        self.users = msgspec.msgpack.decode((folder / PROFILES).read_bytes(), type=Profiles).users
        self.arrays = {path.stem: np.load(path, allow_pickle=False) for path in (folder / ARRAYS).glob("*.npy")}
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        self._graphs: dict[str, Any] = {
            name: ort.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
            for name in (INTENT_ENCODER, PROMPT_ENCODER, DECODER)
        }
        self._fixed = {name: self.arrays[name] for name in decoder_arrays(self.model.levels, manifest.content.files)}

    def states(self, cases: Sequence[Asked]) -> Floats:
        """Rows [B, R, d], as fp16 as they travel; a window without events has the bucket's default rows."""
        shape = (len(cases), self.model.window)
        item, kind, gap = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for row, case in enumerate(cases):
            if length := len(case.window):
                item[row, -length:], kind[row, -length:] = case.window + 1, case.kinds
                gap[row, -length:] = [0.0, *map(gap_feature, np.diff(case.times))]
        feeds = {"item": item, "kind": kind, "gap": gap, "item_in": self.arrays["item_in"]}
        rows = self._graphs[INTENT_ENCODER].run(["rows"], feeds)[0][:, -self.model.state_rows :]
        empty = np.array([len(case.window) == 0 for case in cases])[:, None, None]
        defaults = self.arrays["intent_defaults"][[case.bucket for case in cases]]
        return np.where(empty, defaults, rows).astype(np.float16).astype(np.float32)

    def prompts(self, cases: Sequence[Asked], *, on_device: bool) -> Floats:
        """Rows [B, P, d] of what the device knows; the bucket's default rows where that is nothing."""
        bucket = np.array([case.bucket for case in cases], np.int64)
        defaults = self.arrays["prompt_defaults"][bucket]
        if not on_device:
            return defaults
        size = self.model.local_events
        codes = np.full((len(cases), size, self.model.levels), -1, np.int64)
        kind, age = np.zeros(codes.shape[:2], np.int64), np.zeros(codes.shape[:2], np.float32)
        for row, case in enumerate(cases):
            local = case.local[-size:]
            for place, (item, what, at) in enumerate(local, size - len(local)):
                codes[row, place], kind[row, place] = self.arrays["item_codes"][item], what
                age[row, place] = gap_feature(case.at - at)
        clock = np.array([clock_feature(case.at) for case in cases], np.float32)
        feeds = {"bucket": bucket, "clock": clock, "codes": codes, "kind": kind, "age": age}
        rows = self._graphs[PROMPT_ENCODER].run(["prompt"], feeds)[0]
        return np.where(np.any(kind, axis=1)[:, None, None], rows, defaults)

    def lists(self, cases: Sequence[Asked], title: str, *, on_device: bool) -> Ints:
        """The items recalled for each case [cases, k_max], best first, -1 where there is no more."""
        begins = cli.track(range(0, len(cases), BATCH), title)
        return np.concatenate([self._decode(cases[at : at + BATCH], on_device=on_device) for at in begins])

    def _decode(self, cases: Sequence[Asked], *, on_device: bool) -> Ints:
        lists = Neighbours(self.arrays["neighbour_items"], self.arrays["neighbour_scores"])
        near = window_neighbours(
            cases, lists, self.model.neighbour_decay, self.model.neighbours, repeats=self.model.neighbour_repeats
        )
        exclude = np.full((len(cases), max(1, *(len(case.basket) for case in cases))), -1, np.int64)
        for row, case in enumerate(cases):
            exclude[row, : len(case.basket)] = case.basket
        feeds = {
            "intent": self.states(cases),
            "prompt": self.prompts(cases, on_device=on_device),
            "neighbour_item": near.items.astype(np.int64),
            "neighbour_score": near.scores,
            "exclude": exclude,
            "allow": np.full((len(cases), 1), -1, np.int64),
            "weights": np.array(self.model.weights, np.float32),
        }
        return self._graphs[DECODER].run(["item"], self._fixed | feeds)[0]


def spaced(events: pl.DataFrame, spacing_ms: int) -> pl.DataFrame:
    """Sessions that last: each line, in the log's order, comes ``spacing_ms`` after the one before.

    Invoices carry the minute only, one for all their lines. ``row`` keeps the log's order, ``place`` counts lines.
    """
    place = pl.int_range(pl.len()).over("session")
    later = pl.col("at").min().over("session") + place * spacing_ms
    return events.with_row_index("row").with_columns(at=later, place=place).sort("user_id", "at", "row")


def requests(events: pl.DataFrame, cut_ms: int, users: dict[str, int], kind: int = Kind.PURCHASE.number) -> list[Asked]:
    """One for each session that begins at ``cut_ms`` or later and has two lines or more.

    ``events`` are those of ``spaced``, with the ``number`` of the item. ``window`` holds all that the user has done so
    far, the line that the request comes with included, and ``target`` the rest of the session.
    """
    cases: list[Asked] = []
    for (user,), rows in events.group_by("user_id", maintain_order=True):
        item, at = rows["number"].to_numpy(), rows["at"].to_numpy()
        session, place = rows["session"].to_numpy(), rows["place"].to_numpy()
        for name in dict.fromkeys(session[at >= cut_ms]):
            lines = np.flatnonzero(session == name)
            half = len(lines) // 2
            if half < 1 or at[lines[0]] < cut_ms:
                continue
            asked, rest = lines[place[lines] == half - 1][0], lines[place[lines] >= half]
            seen = slice(0, asked + 1)
            kinds = np.full(asked + 1, kind)
            bucket = users.get(str(user), UNKNOWN_BUCKET)
            basket = item[lines[place[lines] < half]]
            cases.append(Asked(str(user), bucket, int(at[asked]), item[seen], kinds, at[seen], item[rest], [], basket))
    return cases


def delayed(case: Asked, delay_ms: float, window: int, local_events: int) -> Asked:
    """The case as the tiers see it: the state holds ``window`` events, none of the last ``delay_ms``; the device those.

    A delay of 0 leaves nothing to the device.
    """
    missed = int(np.sum(case.times > case.at - delay_ms))
    known = slice(max(0, len(case.times) - missed - window), len(case.times) - missed)
    places = range(len(case.times) - min(missed, local_events), len(case.times))
    local = [(int(case.window[p]), int(case.kinds[p]), int(case.times[p])) for p in places]
    return replace(case, window=case.window[known], kinds=case.kinds[known], times=case.times[known], local=local)


def recall(lists: Ints, cases: Sequence[Asked], first: int = FIRST) -> NDArray[np.float64]:
    """Recall@``first`` of each case: hits over the number of its targets."""
    hits = [np.isin(case.target, found[:first]).mean() for found, case in zip(lists, cases, strict=True)]
    return np.array(hits)


def compared(stale: NDArray[np.float64], prompted: NDArray[np.float64], fresh: NDArray[np.float64]) -> dict[str, float]:
    """Means over the cases; ``standard_error`` is that of the gain, each case paired with itself."""
    if not len(stale):
        return {"cases": 0}
    gains = prompted - stale
    means = {"seen_all": fresh, "stale": stale, "prompted": prompted, "gain": gains}
    error = float(gains.std() / np.sqrt(len(gains)))
    return {"cases": len(stale), **{name: round(float(v.mean()), 5) for name, v in means.items()}} | {
        "standard_error": round(error, 5)
    }


def measure(tiers: Tiers, cases: Sequence[Asked], delays_s: Sequence[float]) -> dict[str, Any]:
    """Recall@10 by delay in seconds, without the prompt, with it, and had everything been seen.

    ``few_events`` are the cases whose state holds fewer than ``FEW`` events: those that have most to gain.
    """

    def seen(delay_s: float) -> list[Asked]:
        return [delayed(case, delay_s * 1000, tiers.model.window, tiers.model.local_events) for case in cases]

    def answered(some: Sequence[Asked], title: str, *, on_device: bool) -> NDArray[np.float64]:
        return recall(tiers.lists(some, title, on_device=on_device), some)

    fresh = answered(seen(0.0), "all seen", on_device=False)
    rows: dict[str, Any] = {}
    for delay_s in delays_s:
        late = seen(delay_s)
        stale = answered(late, f"{delay_s:g} s late", on_device=False)
        prompted = answered(late, f"{delay_s:g} s late, with the prompt", on_device=True)
        few = np.array([len(case.window) < FEW for case in late])
        missed = [int(np.sum(case.times > case.at - delay_s * 1000)) for case in cases]
        rows[f"{delay_s:g}"] = {
            **compared(stale, prompted, fresh),
            "missed_events": round(float(np.mean(missed)), 2),
            "few_events": compared(stale[few], prompted[few], fresh[few]),
        }
    return {"seen_all": round(float(fresh.mean()), 5), "by_delay": rows}


def gain(args: argparse.Namespace) -> cli.Result:
    """The verb."""
    delays_s = args.delay or list(DELAYS_S)
    if min(delays_s) <= 0 or args.spacing <= 0:
        raise DataError("not a time", where="--delay, --spacing", mend="Give seconds above 0.")
    tiers = Tiers(_folder(args.release), args.key, args.threads)
    with cli.step("baskets") as made:
        source = read_online_retail(args.invoices)
        events = source.events.unique("event_id", keep="first", maintain_order=True)
        cut_ms = cut_time(events)
        known = pl.DataFrame({"item_id": tiers.item_ids}).with_row_index("number")
        events = events.join(known.cast({"number": pl.Int64}), on="item_id", how="inner", maintain_order="left")
        cases = requests(spaced(events, round(args.spacing * 1000)), cut_ms, tiers.users)
        if not cases:
            mend = "Give a release that was built from this file."
            raise DataError("no held-back basket of the release's items", where=str(args.invoices), mend=mend)
        made(f"{len(cases):,} held-back sessions; a line each {args.spacing:g} s, in the log's order")
    found = measure(tiers, cases, delays_s)
    cli.say(f"  Recall@10 when all is seen: {found['seen_all']:.4f}")
    for delay, row in found["by_delay"].items():
        said = f"{row['stale']:.4f}, with the prompt {row['prompted']:.4f}"
        by = f"{row['gain']:+.4f} ± {row['standard_error']:.4f}"
        cli.say(f"  {delay:>3} s late, {row['missed_events']:g} events missed: {said} ({by})")
    return {
        "release": tiers.id,
        "data": source.name,
        "cases": len(cases),
        "spacing_s": args.spacing,
        "local_events": tiers.model.local_events,
        "recall_gain": {delay: row["gain"] for delay, row in found["by_delay"].items()},
        "recall_at_10": found,
    }


def _folder(name: str) -> Path:
    for folder in (Path(name), releases_dir() / name):
        if folder.is_dir():
            return folder
    raise ReleaseError("no such release", where="--release", value=name, mend="See `./beforehand release list`.")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("--release", required=True, metavar="ID|FOLDER", help="a release built from Online Retail")
    add("--invoices", type=Path, required=True, metavar="FILE", help="invoices.parquet of Online Retail")
    add("--key", type=Path, default=public_key_path(), help="the key that it must be signed with")
    add("--delay", type=float, action="append", metavar="S", help="of the near-line tier; repeatable (1, 10 and 60)")
    add("--spacing", type=float, default=5.0, metavar="S", help="between a basket's lines (default 5)")
    add("--threads", type=int, default=1, help="of onnxruntime (default 1)")
