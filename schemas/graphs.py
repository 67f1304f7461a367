"""The three graphs of a release and the arrays they take: names, shapes, types. Shared by those who export, encode
and decode, so that all tiers compute the same numbers.

Item *numbers* are 0 … N-1 in the order of the semantic IDs: number i is leaf i of the trie. Graph input ``item``
uses number + 1, and 0 is padding. B batch, T window, R state rows, P prompt rows, d width, L levels, K codes,
E local events, M neighbours, X exclusions, A allowed categories.

intent_encoder.onnx
    item int64 [B, T] (oldest first, padded on the left with 0), kind int64 [B, T] (0 padding, 1 … Kind),
    gap float32 [B, T] (``gap_feature`` of the time since the event before; 0 for the first),
    item_in float32 [N + 1, d]
    → rows float32 [B, T, d]. Causal: a new event adds a row and changes no older one. The state is the last R rows.
intent_step.onnx, of releases with a long window
    item, kind int64 and gap float32 [B, n] of the new events (no padding), past_key and past_value float32
    [B, layers, heads, S, d / heads] of the S events before, item_in float32 [N + 1, d]
    → rows float32 [B, n, d], key and value float32 [B, layers, heads, n, d / heads]: the rows of the whole encoder
prompt_encoder.onnx
    bucket int64 [B], clock float32 [B, 4] (``clock_feature``), codes int64 [B, E, L] (newest last, -1 padding),
    kind int64 [B, E] (0 padding), age float32 [B, E] (``gap_feature`` of the event's age)
    → prompt float32 [B, P, d]
decoder.onnx
    intent float32 [B, R, d], prompt float32 [B, P, d], neighbour_item int64 [B, M] (item numbers, -1 padding),
    neighbour_score float32 [B, M], exclude int64 [B, X] (-1 padding), allow int64 [B, A] (category numbers;
    all -1 allows every category), weights float32 [4] (log-probability, item score, neighbour score, floor),
    and the arrays of ``DECODER_ARRAYS``
    → item int64 [B, k_max] (best first, -1 where there is no more), score float32 [B, k_max]
"""

from __future__ import annotations

import math
from collections.abc import Container

INTENT_ENCODER = "intent_encoder.onnx"
INTENT_STEP = "intent_step.onnx"
LONG_WINDOW = 200
"""With a window of so many events or more a release holds ``intent_step.onnx``: a kept row costs a sixth there."""
PROMPT_ENCODER = "prompt_encoder.onnx"
DECODER = "decoder.onnx"

ENCODER_ARRAYS = ("item_in",)
CATEGORY_SETS = "category_sets"


def decoder_arrays(levels: int, files: Container[str] | None = None) -> tuple[str, ...]:
    """Names of the arrays (``arrays/NAME.npy``) that the decoder takes beside the request's own inputs.

    ``offset_l`` int64 [nodes at depth l + 1]: children of node j at depth l are ``offset_l[j] … offset_l[j+1]``;
    ``child_l`` int64: their codes; a child's position is its node number at depth l + 1 (at the last level, the item
    number). ``fan_l`` int64 [largest number of children at depth l]: 0, 1, 2, …
    ``item_codes`` int64 [N, L], ``item_path`` int64 [N, L] (node number of the item at depth 0 … L-1),
    ``item_out`` float32 [N, d], ``item_bias`` float32 [N], ``item_category`` int64 [N].
    ``set_l`` int64 [nodes at depth l + 1], for all levels but the last: the row of ``category_sets`` int64 [S, words]
    that has the categories below a node; category c is bit c % 64 of word c // 64.

    ``files`` are those of a release's manifest. Decoders of format 1 know no sets: their releases hold none.
    """
    trie = tuple(f"{name}_{level}" for level in range(levels) for name in ("offset", "child", "fan"))
    items = ("item_codes", "item_path", "item_out", "item_bias", "item_category")
    if files is not None and f"arrays/{CATEGORY_SETS}.npy" not in files:
        return (*trie, *items)
    return (*trie, *items, *(f"set_{level}" for level in range(levels - 1)), CATEGORY_SETS)


OTHER_ARRAYS = (
    "neighbour_items",  # int32 [N, M]: the nearest items of each item, -1 padding; may hold the item itself
    "neighbour_scores",  # float32 [N, M]
    "intent_defaults",  # float32 [buckets, R, d]
    "prompt_defaults",  # float32 [buckets, P, d]
    "cohort_items",  # int32 [buckets, J]: best items per profile bucket, -1 padding; row 0 is everybody
    "cohort_scores",  # float32 [buckets, J]
)


def gap_feature(gap_ms: float) -> float:
    """``log1p`` of the gap in hours; a gap below zero counts as zero."""
    return math.log1p(max(0.0, gap_ms) / 3_600_000)


def clock_feature(at_ms: int) -> tuple[float, float, float, float]:
    """Sine and cosine of the hour of the day and of the day of the week, UTC."""
    day = at_ms / 86_400_000
    hour = 2 * math.pi * (day % 1)
    week = 2 * math.pi * ((day + 3) % 7) / 7  # 1970-01-01 was a Thursday: 0 is Monday 00:00
    return (math.sin(hour), math.cos(hour), math.sin(week), math.cos(week))
