"""``Event``: one thing a user did. Kafka topic ``events``, key ``user_id``, value JSON.

``Forget``: a user asked to be forgotten. Kafka topic ``forgotten`` (compacted, kept for good), key ``user_id``.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from schemas.errors import DataError
from schemas.names import Kind

VERSION = 1
MAX_ID_CHARACTERS = 256
MAX_RECORD_BYTES = 64 * 1024
MIN_AT_MS = 946_684_800_000  # 2000-01-01: anything smaller is seconds, or a mistake
MAX_AT_MS = 4_102_444_800_000  # 2100-01-01: anything larger is microseconds, or a mistake

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARACTERS, pattern=r"^[^\x00-\x1f\x7f]+\Z")]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a user did.

    ``event_id`` is unique per event: the same id twice is the same event, and the first wins.
    ``at`` is event time in milliseconds since 1970 (UTC). ``context`` is free, small and never required.
    Unknown fields are ignored by readers.
    """

    event_id: Id
    user_id: Id
    item_id: Id
    kind: Kind
    at: Annotated[int, msgspec.Meta(ge=MIN_AT_MS, le=MAX_AT_MS)]
    context: dict[str, str] = {}
    v: int = VERSION


class Forget(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing that ``user_id`` did up to ``at`` may be kept or taken again; what happens later is a new beginning.

    It counts by event time alone: whether an event arrives before or after it makes no difference.
    """

    user_id: Id
    at: Annotated[int, msgspec.Meta(ge=MIN_AT_MS, le=MAX_AT_MS)]
    v: int = VERSION


_decoder = msgspec.json.Decoder(Event)
_forget_decoder = msgspec.json.Decoder(Forget)
encode_event = msgspec.json.Encoder().encode
encode_forget = msgspec.json.Encoder().encode


def decode_event(raw: bytes, where: str = "event") -> Event:
    """The event in ``raw`` (JSON).

    Raises:
        DataError: naming the field and the mend; the seconds-for-milliseconds mistake is named as such.
    """
    if len(raw) > MAX_RECORD_BYTES:
        raise DataError("the record is too large", where=where, value=f"{len(raw)} bytes", mend="64 KB at most.")
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"not a valid event: {error}", where=where, value=raw[:200], mend=_mend(raw)) from None


def decode_forget(raw: bytes) -> Forget:
    """The request in ``raw`` (JSON). Raises ``DataError``."""
    try:
        return _forget_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"not a request to forget: {error}", where="forgotten", value=raw[:200]) from None


def _mend(raw: bytes) -> str:
    try:
        at: object = msgspec.json.decode(raw).get("at")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        return "Send one JSON object with event_id, user_id, item_id, kind and at."
    if isinstance(at, int) and MIN_AT_MS <= at * 1000 <= MAX_AT_MS:
        return "at looks like seconds: send milliseconds since 1970."
    if isinstance(at, int) and MIN_AT_MS <= at // 1000 <= MAX_AT_MS:
        return "at looks like microseconds: send milliseconds since 1970."
    return f"kind is one of {', '.join(Kind)}; at is in milliseconds; ids have 1 to {MAX_ID_CHARACTERS} characters."
