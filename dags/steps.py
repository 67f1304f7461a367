"""The steps that pipelines are made of: each is one verb of ``./beforehand``. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

RETRIES = 1
STEPS_OF_ASSET: dict[str, tuple[str, ...]] = {
    "semantic_index": ("encode", "index"),
    "generator": ("train", "evaluate", "export"),
    "cohort_lists": ("lists",),
}
"""Stages of ``./beforehand build`` by the offline asset that they make."""
_SHOP = ("data", "source", "small", "file", "catalogue", "events", "profiles")
BUILD_FIELDS = (*_SHOP, "set", "force")
RELEASE_FIELDS = ("release",)
PROMOTE_FIELDS = ("release", "bundle", "share", "canary_share", "canary_for", "watch_for")
WATCH_FIELDS = ("users", "unknown", "rest_h")
BACKFILL_FIELDS = ("begin", "end", "most", *_SHOP, "set")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One task. ``after`` names steps of the same pipeline; those of one ``group`` are folded together."""

    id: str
    limit_s: float  # after which it is stopped
    after: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()  # assets and sources
    outputs: tuple[str, ...] = ()
    group: str = ""
    retries: int = RETRIES
    skip_unless: str = ""  # key of the result: when it is false there is nothing new, and no asset event
    when_failed: bool = False  # runs only when one of those before it failed


def in_a_row(
    names: Sequence[str], *, limit_s: float, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()
) -> tuple[Step, ...]:
    """One after the other: the first reads the inputs, the last makes the outputs."""
    return tuple(
        Step(
            id=name,
            limit_s=limit_s,
            after=(names[place - 1],) if place else (),
            inputs=inputs if place == 0 else (),
            outputs=outputs if place == len(names) - 1 else (),
        )
        for place, name in enumerate(names)
    )
