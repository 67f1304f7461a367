"""A release as the look-up service uses it: verified, memory-mapped, warm."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import onnxruntime as ort  # pyright: ignore[reportMissingTypeStubs]
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from online.encoders import intent_feed, prompt_feed
from online.graph import ORT_ERRORS, Array, Graph
from online.sessions import Runner, open_decoder
from online.tables import Known, Names, numbered, read_catalogue, read_profiles, unwalked
from schemas.api import Item
from schemas.errors import ReleaseError
from schemas.graphs import DECODER, INTENT_ENCODER, OTHER_ARRAYS, PROMPT_ENCODER, decoder_arrays
from schemas.lineage import LINEAGE, Family, read_lineage
from schemas.release import (
    ARRAYS,
    CATALOGUE,
    MANIFEST,
    PROFILES,
    UNKNOWN_BUCKET,
    Catalogue,
    Manifest,
    Model,
    read_manifest,
    verify_files,
)

T = TypeVar("T")
Row = tuple[Array, Array]
GRAPHS = (DECODER, INTENT_ENCODER, PROMPT_ENCODER)
WARM_RUNS = 5
MAX_MADE = 4096
"""Lists kept ready to be sent; some 10 KB each."""


class Cohorts:
    """The offline lists by bucket, as they may be returned: what every rung below falls back to, ready to be sent."""

    def __init__(self, items: Array, scores: Array, num_items: int) -> None:
        self._items, self._scores = items, scores
        self._may = (items >= 0) & (items < num_items) & np.isfinite(scores)
        self.filled = [bool(row.any()) for row in items >= 0]
        self._made: dict[tuple[int, int], list[Item]] = {}

    def row(self, bucket: int) -> Row:
        """Item numbers and scores as they are stored."""
        return self._items[bucket], self._scores[bucket]

    def first(self, bucket: int, k: int, make: Callable[[Array, Array], list[Item]]) -> list[Item]:
        """The first ``k``, made once: items don't change."""
        made = self._made.get((bucket, k))
        if made is None:
            may = self._may[bucket]
            made = make(self._items[bucket][may][:k].astype(np.int64), self._scores[bucket][may][:k])
            if len(self._made) < MAX_MADE:
                self._made[bucket, k] = made
        return made


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """Everything here comes from one directory; no answer mixes two of these.

    ``usual_s`` is what one run of each graph took when the release was loaded, on one thread.
    """

    id: str
    folder: Path
    made_at: int  # ms
    model: Model
    catalogue: Catalogue
    profiles: Known
    arrays: dict[str, Array]
    decoder: Runner
    item_numbers: Mapping[str, int]
    category_numbers: Mapping[str, int]
    bucket_numbers: Mapping[str, int]
    usual_s: dict[str, float]
    cohorts: Cohorts
    graphs: dict[str, str]  # sha256 of each graph's file
    family: Family | None = None  # of a release that grew by insertion

    @property
    def num_live(self) -> int:
        """Item numbers from here on are of withdrawn items."""
        return self.model.num_items if self.family is None else self.family.num_live

    def takes_over(self, release_id: str) -> bool:
        """Whether it grew from that release: what was made with it is used (``online.takeover``)."""
        return self.family is not None and release_id in self.family.ancestors

    def items(self, numbers: Array, scores: Array) -> list[Item]:
        """The answer's items, in the order given."""
        # Every answer passes here, 50 items each: this costs half of what a loop over indices does.
        ids: list[str] = self.catalogue.item_ids
        which: list[int] = numbers.tolist()
        names: Sequence[str] = itemgetter(*which)(ids) if len(which) > 1 else [ids[n] for n in which]
        codes: list[list[int]] = self.arrays["item_codes"].take(numbers, axis=0).tolist()
        return list(map(Item, names, codes, scores.tolist()))

    def decoder_feed(
        self, intent: Array, prompt: Array, near: tuple[Array, Array], limits: tuple[Array, Array]
    ) -> dict[str, Array]:
        """The decoder's own inputs of one request, shapes as in ``schemas.graphs`` with B = 1."""
        return {
            "intent": intent,
            "prompt": prompt,
            "neighbour_item": near[0],
            "neighbour_score": near[1],
            "exclude": limits[0],
            "allow": limits[1],
        }


def load(folder: Path, key: Ed25519PublicKey, release_id: str | None = None, beside: Sequence[Release] = ()) -> Release:
    """Read, verify, map and warm a release.

    Of those ``beside`` it, one whose graphs have the same bytes lends its session and its usual times: what grew from
    a release by insertion has only other arrays.

    Raises:
        ReleaseError: it is missing, damaged, unsigned, not the one that was asked for, or does not run.
    """
    manifest = read_manifest(folder, key)
    if release_id not in (None, manifest.id):
        raise ReleaseError("another release is there", where=str(folder), value=manifest.id)
    verify_files(folder, manifest)
    _check_runtime(manifest, folder)
    model = manifest.content.model
    names = decoder_arrays(model.levels, manifest.content.files)
    arrays = {name: _array(folder, manifest, name) for name in (*names, *OTHER_ARRAYS)}
    _check_shapes(arrays, model, folder)
    catalogue, profiles, item_numbers = _tables(folder, manifest)
    weights = np.asarray(model.weights, np.float32)
    bound = {**{name: arrays[name] for name in names}, "weights": weights}
    path, graphs = _path(folder, manifest, DECODER), _digests(folder, manifest)
    twin = next((other for other in beside if other.graphs == graphs), None)
    decoder = twin.decoder.with_arrays(bound) if twin else open_decoder(path, bound)
    release = Release(
        id=manifest.id,
        folder=folder,
        made_at=manifest.made_at,
        model=model,
        catalogue=catalogue,
        profiles=profiles,
        arrays=arrays,
        decoder=decoder,
        item_numbers=item_numbers,
        category_numbers=numbered(catalogue.categories),
        bucket_numbers=numbered(profiles.buckets),
        usual_s={},
        cohorts=Cohorts(arrays["cohort_items"], arrays["cohort_scores"], model.num_items),
        graphs=graphs,
        family=_family(folder, manifest),
    )
    try:
        release.usual_s.update(_warm(release, manifest, twin))
    except ORT_ERRORS as error:
        raise ReleaseError(f"a graph does not run: {error}", where=str(folder)) from None
    return release


def load_encoders(release: Release, manifest: Manifest) -> tuple[Graph, Graph]:
    """The intent and the prompt encoder; they are not kept, for they run in other tiers."""
    item_in = {"item_in": _array(release.folder, manifest, "item_in")}
    intent = Graph(_path(release.folder, manifest, INTENT_ENCODER), item_in)
    return intent, Graph(_path(release.folder, manifest, PROMPT_ENCODER), {})


def _warm(release: Release, manifest: Manifest, twin: Release | None) -> dict[str, float]:
    model, arrays = release.model, release.arrays
    near = (np.full((1, model.neighbours), -1, np.int64), np.zeros((1, model.neighbours), np.float32))
    none = np.full((1, 1), -1, np.int64)
    rows = (arrays["intent_defaults"][:1], arrays["prompt_defaults"][:1])
    feed = release.decoder_feed(*rows, near, (none, none))
    items, scores = release.decoder.run(feed)[:2]
    if not np.isfinite(scores[items >= 0]).all() or not (items >= 0).any():
        raise ReleaseError("the decoder answers nothing finite for everybody", where=str(release.folder / DECODER))
    decode_s = _usual(lambda: release.decoder.run(feed))
    if twin is not None:
        return twin.usual_s | {"decode": decode_s}
    intent, prompt = load_encoders(release, manifest)
    window = [number % model.num_items for number in range(model.window)]
    long = intent_feed(model, window, [1] * model.window, [0] * model.window)
    local = prompt_feed(model, arrays["item_codes"], UNKNOWN_BUCKET, 0, [(n, 1, 0) for n in window])
    return {
        "decode": decode_s,
        "intent_state": _usual(lambda: intent.run(long)),
        "prompt_embedding": _usual(lambda: prompt.run(local)),
    }


def _usual(run: Callable[[], Sequence[Array]]) -> float:
    run()
    took: list[float] = []
    for _ in range(WARM_RUNS):
        begun = time.perf_counter()
        run()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def _path(folder: Path, manifest: Manifest, name: str) -> Path:
    if name not in manifest.content.files:
        raise ReleaseError("the manifest does not list a file that is needed", where=str(folder / MANIFEST), value=name)
    return folder / name


def _digests(folder: Path, manifest: Manifest) -> dict[str, str]:
    for name in GRAPHS:
        _path(folder, manifest, name)
    return {name: manifest.content.files[name].sha256 for name in GRAPHS}


def _array(folder: Path, manifest: Manifest, name: str) -> Array:
    path = _path(folder, manifest, f"{ARRAYS}/{name}.npy")
    try:
        # A plain view of the mapping: numpy's own class for it costs microseconds at every index.
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise ReleaseError(f"not an array: {error}", where=str(path)) from None


def _tables(folder: Path, manifest: Manifest) -> tuple[Catalogue, Known, Names]:
    model = manifest.content.model
    with unwalked():
        catalogue = _table(folder, manifest, CATALOGUE, read_catalogue)
        profiles = _table(folder, manifest, PROFILES, read_profiles)
        item_numbers = numbered(catalogue.item_ids)
    if len(catalogue.item_ids) != model.num_items or len(profiles.buckets) != model.num_buckets:
        raise ReleaseError("catalogue or profiles have another size than the model", where=str(folder))
    return catalogue, profiles, item_numbers


def _family(folder: Path, manifest: Manifest) -> Family | None:
    if LINEAGE not in manifest.content.files:
        return None
    return Family(read_lineage((folder / LINEAGE).read_bytes(), str(folder / LINEAGE)))


def _table(folder: Path, manifest: Manifest, name: str, read: Callable[[bytes], T]) -> T:
    path = _path(folder, manifest, name)
    try:
        return read(path.read_bytes())
    except msgspec.DecodeError as error:
        raise ReleaseError(f"damaged: {error}", where=str(path), mend="Publish the release again.") from None


def _check_shapes(arrays: dict[str, Array], model: Model, folder: Path) -> None:
    shapes = {
        "item_codes": (model.num_items, model.levels),
        "item_category": (model.num_items,),
        "intent_defaults": (model.num_buckets, model.state_rows, model.width),
        "prompt_defaults": (model.num_buckets, model.prompt_rows, model.width),
        "cohort_items": (model.num_buckets, *arrays["cohort_scores"].shape[1:]),
    }
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            where = str(folder / ARRAYS / f"{name}.npy")
            raise ReleaseError(f"the shape should be {shape}", where=where, value=arrays[name].shape)


def _check_runtime(manifest: Manifest, folder: Path) -> None:
    needed = manifest.content.minimum_runtimes.get("onnxruntime", "0")
    have: str = ort.__version__
    if _version(have) < _version(needed):
        mend = f"Upgrade onnxruntime to {needed}."
        raise ReleaseError("it needs a newer onnxruntime", where=str(folder / MANIFEST), value=have, mend=mend)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
