"""What a device holds: the prompt encoder, the items' codes, the default rows. No title, no user, no profile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from edge.names import BundleReason
from schemas.errors import ReleaseError
from schemas.release import UNKNOWN_BUCKET


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of the prompt encoder. Letters as in ``schemas.graphs``."""

    width: int  # d
    prompt_rows: int  # P
    local_events: int  # E
    levels: int  # L
    codes: int  # K per level
    num_items: int
    num_buckets: int


class CodesOf(Protocol):
    """Item id → codes, int64 [L], or None when there is no such item."""

    def __call__(self, item_id: str, /) -> NDArray[np.int64] | None: ...


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """What the device knows of one release. Immutable."""

    release: str
    sizes: Sizes
    made_at_ms: int  # of the release
    graph: bytes
    codes: CodesOf
    prompt_defaults: NDArray[np.float32]  # [buckets, P, d]
    buckets: tuple[str, ...] = ()  # names, by number; 0 is everybody
    usable_for_s: float = math.inf  # age of the release past which the bundle is not used
    prompt_usable_for_s: float = math.inf  # age past which a prompt embedding is not sent

    def known_bucket(self, bucket: int | str) -> int:
        """The number of ``bucket``, given by number or name; the bucket of everybody when the release lacks it."""
        if isinstance(bucket, str):
            return self.buckets.index(bucket) if bucket in self.buckets else UNKNOWN_BUCKET
        return bucket if 0 <= bucket < self.sizes.num_buckets else UNKNOWN_BUCKET


class BundleError(ReleaseError):
    """A bundle that is refused; ``reason`` is what every SDK says of it."""

    def __init__(self, reason: BundleReason, problem: str, *, where: str, value: object = None, mend: str = "") -> None:
        super().__init__(problem, where=where, value=value, mend=mend or "Publish the bundle again.")
        self.reason = reason
