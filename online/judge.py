"""May this stored or sent value be used? Pure rules: bytes in, a value or a reason out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from online.graph import Array
from online.release import Release
from schemas.api import AssetReport, PromptEmbedding
from schemas.errors import DataError
from schemas.freshness import Freshness, age_s
from schemas.names import Reason, State
from schemas.release import Model
from schemas.state import Candidates, IntentState, decode_candidates, decode_state

Stored = TypeVar("Stored", IntentState, Candidates)


def judge_state(
    raw: bytes | None, user_id: str, rule: Freshness, now_ms: int
) -> tuple[IntentState | None, AssetReport]:
    """The stored state if it is this user's and not too old; its content is not looked at yet."""
    return _judge(raw, decode_state, user_id, rule, now_ms)


def judge_candidates(
    raw: bytes | None, user_id: str, rule: Freshness, now_ms: int
) -> tuple[Candidates | None, AssetReport]:
    """The stored list if it is this user's and not too old."""
    return _judge(raw, decode_candidates, user_id, rule, now_ms)


def _judge(
    raw: bytes | None, decode: Callable[[bytes], Stored], user_id: str, rule: Freshness, now_ms: int
) -> tuple[Stored | None, AssetReport]:
    if raw is None:
        return None, AssetReport(State.MISSING, Reason.NO_STATE)
    try:
        value = decode(raw)
    except (DataError, RecursionError):
        return None, AssetReport(State.EMPTY, Reason.UNDECODABLE)
    if value.user_id != user_id:
        return None, AssetReport(State.EMPTY, Reason.WRONG_KEY)
    age = age_s(value.made_at, now_ms)
    state = rule.judge(age)
    if state is State.EXPIRED:
        return None, AssetReport(state, Reason.TOO_OLD, age)
    return value, AssetReport(state, Reason.OK, age)


def state_rows(state: IntentState, model: Model) -> tuple[Array | None, Reason]:
    """The state's rows, float32 [1, R, d]."""
    if len(state.items) == 0:
        return None, Reason.NO_STATE
    shape = (model.state_rows, model.width)
    if state.num_rows != shape[0] or len(state.rows) != 2 * shape[0] * shape[1]:
        return None, Reason.BAD_SHAPE
    rows = np.frombuffer(state.rows, "<f2").astype(np.float32).reshape(1, *shape)
    return _finite(rows)


def prompt_rows(prompt: PromptEmbedding | None, release: Release, rule: Freshness) -> tuple[Array | None, AssetReport]:
    """The prompt's rows, float32 [1, P, d], if the device made them with this release, in time."""
    if prompt is None:
        return None, AssetReport(State.MISSING, Reason.NOT_SENT)
    age = prompt.age_ms / 1000
    if prompt.release != release.id and not release.takes_over(prompt.release):
        return None, AssetReport(State.MISMATCHED, Reason.OTHER_RELEASE, age)
    state = rule.judge(age)
    if state is State.EXPIRED:
        return None, AssetReport(state, Reason.TOO_OLD, age)
    shape = (release.model.prompt_rows, release.model.width)
    if prompt.num_rows != shape[0] or len(prompt.rows) != 4 * shape[0] * shape[1]:
        return None, AssetReport(State.EMPTY, Reason.BAD_SHAPE, age)
    rows, reason = _finite(np.frombuffer(prompt.rows, "<f4").astype(np.float32).reshape(1, *shape))
    return rows, AssetReport(state if rows is not None else State.EMPTY, reason, age)


def neighbours(state: IntentState | None, model: Model) -> tuple[Array, Array]:
    """The state's neighbours as the decoder takes them: int64 and float32 [1, M], -1 padding."""
    item = np.full((1, model.neighbours), -1, np.int64)
    score = np.zeros((1, model.neighbours), np.float32)
    if state is not None:
        numbers = item_numbers(state.neighbour_items[: model.neighbours])
        count = min(len(numbers), len(state.neighbour_scores))
        item[0, :count] = numbers[:count]
        score[0, :count] = state.neighbour_scores[:count]
        bad = (item < 0) | (item >= model.num_items) | ~np.isfinite(score)
        item[bad], score[bad] = -1, 0.0
    return item, score


def item_numbers(stored: Sequence[int]) -> Array:
    """Stored numbers as int64; none when one of them is no item number of any release."""
    try:
        return np.asarray(stored, np.int64)
    except OverflowError:
        return np.zeros(0, np.int64)


def _finite(rows: Array) -> tuple[Array | None, Reason]:
    return (rows, Reason.OK) if np.isfinite(rows).all() else (None, Reason.NOT_FINITE)
