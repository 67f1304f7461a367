"""Redis keys. The user id is percent-encoded inside a hash tag: no two ids share a key, and all of one user's
assets sit in one slot of a cluster."""

from __future__ import annotations

from urllib.parse import quote

from schemas.errors import DataError
from schemas.event import MAX_ID_CHARACTERS

PREFIX = "bh"


def check_user_id(user_id: str) -> str:
    """``user_id`` itself.

    Raises:
        DataError: when it is empty, longer than 256 characters, or holds control characters.
    """
    if not user_id or len(user_id) > MAX_ID_CHARACTERS:
        raise DataError(
            "a user id has 1 to 256 characters", where="user_id", value=user_id, mend="Send the shop's own id."
        )
    if any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in user_id):
        raise DataError(
            "a user id has no control characters",
            where="user_id",
            value=user_id,
            mend="Strip them at the source.",
        )
    return user_id


def state_key(user_id: str) -> str:
    """Where the user's ``IntentState`` is."""
    return f"{PREFIX}:{{{quote(check_user_id(user_id), safe='')}}}:state"


def candidates_key(user_id: str) -> str:
    """Where the user's ``Candidates`` are."""
    return f"{PREFIX}:{{{quote(check_user_id(user_id), safe='')}}}:candidates"


INVALIDATION_CHANNEL = f"{PREFIX}:changed"
"""Pub/sub: each message is a msgpack list of the user ids whose state has just been written."""
