"""``ItemChange``: a new, changed or withdrawn item. Kafka topic ``catalogue`` (compacted, kept), key ``item_id``.

The last word on an item is the change with the largest ``at``; at equal times the one that comes later in the topic. An
older one that comes late, or comes again, changes nothing.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import msgspec

from schemas.errors import DataError
from schemas.event import MAX_AT_MS, MAX_RECORD_BYTES, MIN_AT_MS, Id

VERSION = 1
Words = Annotated[str, msgspec.Meta(max_length=20_000)]


class Change(StrEnum):
    """What became of the item."""

    ADDED = "added"  # it can be recalled from now on; of one that is there already: as ``changed``
    CHANGED = "changed"  # title and category are these; its semantic ID stays; a withdrawn one is back
    WITHDRAWN = "withdrawn"  # it is recalled no longer; what users did with it stays in their histories


class ItemChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change. ``text`` is what is encoded, the title by default. An added or changed item has a title.

    ``at`` is when it changed in the shop, in milliseconds since 1970 (UTC). Unknown fields are ignored by readers.
    """

    item_id: Id
    change: Change
    at: Annotated[int, msgspec.Meta(ge=MIN_AT_MS, le=MAX_AT_MS)]
    title: Words = ""
    text: Words = ""
    category: Annotated[str, msgspec.Meta(max_length=256)] = ""
    brand: Annotated[str, msgspec.Meta(max_length=256)] = ""
    v: int = VERSION


_decoder = msgspec.json.Decoder(ItemChange)
encode_change = msgspec.json.Encoder().encode


def decode_change(raw: bytes | None, where: str = "catalogue") -> ItemChange:
    """The change in ``raw`` (JSON).

    Raises:
        DataError: ``value`` is a reason from a closed set: null_value, too_large, not_json, not_an_object, title, or
            the field that is wrong.
    """
    if raw is None:
        raise _bad(where, "null_value", "a record without a value", "To take an item out send change: withdrawn.")
    if len(raw) > MAX_RECORD_BYTES:
        raise _bad(where, "too_large", f"{len(raw)} bytes", "64 KB at most.")
    try:
        change = _decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _bad(where, _field(str(error)), f"not an item change: {error}", "See schemas/json.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(where, "not_json", f"not an item change: {error}", "One JSON object a record.") from None
    if change.change is not Change.WITHDRAWN and not change.title.strip():
        raise _bad(where, "title", "an item without a title can't be placed", "Send its title.")
    return change


def _field(message: str) -> str:
    found = re.search(r"`\$\.(\w+)|required field `(\w+)`", message)
    return (found[1] or found[2]) if found else "not_an_object"


def _bad(where: str, reason: str, problem: str, mend: str) -> DataError:
    return DataError(problem, where=where, value=reason, mend=mend)
