"""The plan as frozen structs: assets, the tiers' settings, the gate."""

from __future__ import annotations

import hashlib
import re
from graphlib import TopologicalSorter
from typing import Annotated, Literal

import msgspec

from schemas.freshness import Freshness
from schemas.names import Rung, Tier

SOURCES = ("catalogue", "events", "profiles", "device")
NO_FALLBACK = "none"

GATE_METRICS = (
    *(
        f"{of}{what}_at_{cut}"
        for of in ("", "prompted_", "validation_", "neighbours_", "popular_")
        for what in ("recall", "ndcg")
        for cut in (5, 10, 50)
    ),
    *("coverage", "diversity", "novelty", "calibration_error"),
)
"""What the gate may name: the metrics of a build's ``report.json``."""

GateShare = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Duration(float):
    """Seconds, written with a unit."""


class Size(int):
    """Bytes, written with a unit."""


class Asset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something precomputed."""

    tier: Tier
    inputs: list[str]
    fresh_for: Duration
    usable_for: Duration
    budget: Duration
    fallback: str
    schedule: str | None = None

    @property
    def freshness(self) -> Freshness:
        """The rule every reader applies."""
        return Freshness(self.fresh_for, self.usable_for)


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The semantic index."""

    levels: Annotated[int, msgspec.Meta(ge=2, le=8)]
    codes: Annotated[int, msgspec.Meta(ge=2, le=4096)]
    neighbours: Positive
    method: Literal["kmeans", "rqvae"] = "kmeans"  # residual k-means, or a residual-quantised autoencoder
    encoder: str = "minilm"  # or "multilingual", or a folder with model.onnx and tokenizer.json
    vector_width: Positive = 512  # of an item's content vector
    max_shrink: Share = 0.2  # of the last catalogue: one that lost a larger share is refused


class ExportPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How exact a smaller graph must be to be published in place of fp32."""

    min_overlap: Share = 0.98  # of the fp32 lists' items that it must keep


class ModelPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sizes and training of the generator."""

    width: Annotated[int, msgspec.Meta(ge=8, multiple_of=8)]
    layers: Positive
    heads: Positive
    window: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    state_rows: Positive
    prompt_rows: Positive
    local_events: Positive
    epochs: Positive
    batch_size: Positive
    learning_rate: Annotated[float, msgspec.Meta(gt=0)]
    seed: int
    negatives: Positive = 2048  # items drawn as wrong answers, a step
    align: bool = True  # to what users preferred, after training, where the histories tell and validation agrees


class Nearline(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The window job and the encoder worker."""

    refresh: Duration
    max_future: Duration
    state_lifetime: Duration
    max_bad_share: Share
    neighbours: Positive
    candidates_per_s: Annotated[float, msgspec.Meta(ge=0)]


class EdgePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What devices get. Each has a default, for a plan may leave the section out."""

    share: Share = 1.0  # of devices that a new bundle is rolled out to
    min_app: str = "0"  # oldest version of the app that gets it
    refresh: Duration = Duration(3600)  # devices look for a new bundle this often
    first_bytes: Size = Size(4 * 1024**2)  # at most, of what is loaded before the first embedding
    shard_bytes: Size = Size(256 * 1024)  # of one shard of the code table
    max_difference: Annotated[float, msgspec.Meta(gt=0)] = 0.1  # of int8 from fp32, as a share of the rows' RMS


class Online(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The look-up service."""

    budget: Duration
    slack: Duration
    store_timeout: Duration
    k_max: Positive
    cache_bytes: Size
    workers: Positive
    ladder: list[Rung]
    lane_workers: Annotated[int, msgspec.Meta(ge=0)] = 1  # of the own lane of heavy and valuable requests; 0: none
    lane_k: Positive = 200  # a request for so many items is heavy, and so is every one of a batch
    lane_value: Annotated[float, msgspec.Meta(gt=0)] | None = None  # worth so much: valuable; None: no request is


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole of plan.toml."""

    version: int
    assets: dict[str, Asset]
    index: Index
    model: ModelPlan
    nearline: Nearline
    online: Online
    gate: dict[str, GateShare]  # of the current release's value that a new one must reach, by metric
    edge: EdgePlan = EdgePlan()
    export: ExportPlan = ExportPlan()

    def order(self) -> list[str]:
        """Assets, each after its inputs."""
        graph = {name: [i for i in asset.inputs if i in self.assets] for name, asset in self.assets.items()}
        return list(TopologicalSorter(graph).static_order())

    def digest(self) -> str:
        """Changes whenever anything in the plan does."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted", enc_hook=float)).hexdigest()[:16]


class Source:
    """Where a plan came from: finds the line of a field."""

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        self.lines = text.splitlines()

    def where(self, field: str) -> str:
        """``plan.toml:12 online.budget``, without the line when it can't be found."""
        table, _, key = field.rpartition(".")
        inside = not table
        for number, line in enumerate(self.lines, 1):
            if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                inside = header[1] == table
                if header[1] == field:
                    return f"{self.name}:{number} {field}"
            elif inside and re.match(rf"\s*{re.escape(key)}\s*=", line):
                return f"{self.name}:{number} {field}"
        return f"{self.name} {field}"
