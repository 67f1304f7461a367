"""What Redis holds for a user: ``IntentState`` and ``Candidates``, in one framing.

A value is a 20-byte header and a msgpack body::

    magic b"BH1S"/b"BH1C" | watermark ms, uint64 big-endian | sequence, uint64 big-endian | body

The header is what the store compares: (watermark, sequence) greater or equal overwrites, smaller is dropped, so
the newest event time wins whatever the order of arrival; at equal times the later window record (its Kafka
offset) wins, and the same record again writes the same state. A body carries its own user id: a value is
never returned for a key other than the one asked.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from schemas.errors import DataError

STATE_MAGIC = b"BH1S"
CANDIDATES_MAGIC = b"BH1C"
T = TypeVar("T")
HEADER = struct.Struct(">4sQQ")


class IntentState(msgspec.Struct, frozen=True, array_like=True):
    """A user's state, as the intent encoder left it."""

    user_id: str
    release: str
    made_at: int  # wall time, ms: when its window came; what its age counts from
    watermark: int  # event time of the newest event, ms
    arrived_at: int  # the broker's time stamp of the newest event, ms
    bucket: int  # profile bucket
    rows: bytes  # [R, d] float16, little-endian, oldest first
    num_rows: int
    items: list[int]  # window, newest first: item numbers of the release
    kinds: list[int]
    times: list[int]  # event times, ms
    neighbour_items: list[int]  # item numbers, best first
    neighbour_scores: list[float]


class Candidates(msgspec.Struct, frozen=True, array_like=True):
    """A list generated near-line for this user: the ``nearline`` rung."""

    user_id: str
    release: str
    made_at: int  # ms
    watermark: int  # of the state it was made from, ms
    items: list[int]  # item numbers, best first
    scores: list[float]


_encoder = msgspec.msgpack.Encoder()
_state_decoder = msgspec.msgpack.Decoder(IntentState)
_candidates_decoder = msgspec.msgpack.Decoder(Candidates)


def encode_state(state: IntentState, sequence: int) -> bytes:
    """The value to store; ``sequence`` orders writes of equal watermark (the window record's offset)."""
    return HEADER.pack(STATE_MAGIC, state.watermark, sequence) + _encoder.encode(state)


def encode_candidates(candidates: Candidates, sequence: int) -> bytes:
    """The value to store."""
    return HEADER.pack(CANDIDATES_MAGIC, candidates.watermark, sequence) + _encoder.encode(candidates)


def decode_state(raw: bytes) -> IntentState:
    """Raises ``DataError`` when ``raw`` is not an IntentState."""
    return _decode(raw, STATE_MAGIC, _state_decoder)


def decode_candidates(raw: bytes) -> Candidates:
    """Raises ``DataError`` when ``raw`` is not a Candidates."""
    return _decode(raw, CANDIDATES_MAGIC, _candidates_decoder)


def _decode(raw: bytes, magic: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    if raw[:4] != magic:
        raise DataError("not a value of this kind", where="stored value", value=raw[:8])
    try:
        return decoder.decode(memoryview(raw)[HEADER.size :])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"damaged value: {error}", where="stored value", value=raw[:40]) from None
