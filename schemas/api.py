"""The look-up API: ``POST /v1/recall`` takes a RecallRequest and answers a RecallResponse (JSON or msgpack)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from schemas.event import Id
from schemas.names import Reason, Rung, State

MAX_K = 500
MAX_EXCLUDE = 1_000
MAX_ALLOW = 64
MAX_PROMPT_BYTES = 64 * 1024

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class PromptEmbedding(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """What the device computed in the gap. ``age_ms`` is an age, not a time: device clocks lie."""

    release: Name
    rows: bytes  # [P, d] float32, little-endian (base64 in JSON)
    num_rows: int
    age_ms: Annotated[int, msgspec.Meta(ge=0)] = 0


class RecallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for ``k`` items for a user, inside ``budget_ms``.

    ``value`` is what the request is worth (any unit, the higher the better): it decides who gets capacity.
    ``exclude`` are item ids never to return; ``allow`` are categories, and empty allows all.
    ``context`` may name the profile bucket (``{"bucket": "45-54|35-74K"}``) of a user without a state.
    """

    user_id: Id
    k: Annotated[int, msgspec.Meta(ge=1, le=MAX_K)] = 50
    budget_ms: Annotated[float, msgspec.Meta(gt=0, le=10_000)] | None = None
    value: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    prompt: PromptEmbedding | None = None
    context: dict[str, str] = {}
    exclude: Annotated[list[Name], msgspec.Meta(max_length=MAX_EXCLUDE)] = []
    allow: Annotated[list[Name], msgspec.Meta(max_length=MAX_ALLOW)] = []
    v: int = 1


class Item(msgspec.Struct, frozen=True, gc=False):  # it can't be part of a cycle, so nobody need look for one
    """One item of an answer."""

    item_id: str
    sid: list[int]  # codes, coarse to fine
    score: float


class AssetReport(msgspec.Struct, frozen=True):
    """What became of one asset in one answer."""

    state: State
    reason: Reason = Reason.OK
    age_s: float | None = None


class Ledger(msgspec.Struct, frozen=True):
    """Where the time of one request went, in milliseconds, and what precompute saved it.

    ``saved_ms`` is what the stages computed beforehand took when they were measured (their usual time).
    """

    total_ms: float
    budget_ms: float
    left_ms: float
    stages_ms: dict[str, float]  # parse, store, queue, decode, build
    saved_ms: dict[str, float]  # intent_state, prompt_embedding, …


class RecallResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer always says where it came from."""

    user_id: str
    items: list[Item]
    rung: Rung
    release: str
    assets: dict[str, AssetReport]
    skipped: dict[str, Reason]  # better rungs that did not answer, and why
    ledger: Ledger
    v: int = 1


class RungAnswer(msgspec.Struct, frozen=True):
    """What one rung would answer (``explain``)."""

    rung: Rung
    reason: Reason
    items: list[Item]
    took_ms: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """``GET /v1/users/{id}/explain``: the user's state and what each rung would answer."""

    user_id: str
    release: str
    assets: dict[str, AssetReport]
    bucket: str
    window: list[str]  # item ids, newest first
    watermark: int | None
    rungs: list[RungAnswer]
    titles: dict[str, str]  # of every item named above, where the release has one
