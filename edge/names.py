"""The closed set of reasons of this room."""

from __future__ import annotations

from enum import StrEnum


class EdgeReason(StrEnum):
    """Why the device has no prompt embedding, or what became of an event.

    A word that ``schemas.names.Reason`` has too means the same there.
    """

    OK = "ok"
    NOT_LOADED = "not_loaded"  # no bundle, the encoder is still loading, or it does not load
    TOO_OLD = "too_old"  # the bundle is past its usable_for
    TOO_LATE = "too_late"  # the time limit came first
    NO_CONSENT = "no_consent"  # the user has not agreed, or has withdrawn
    NO_EVENTS = "no_events"  # nothing known to encode: the bucket's default rows stand in
    NOT_MADE = "not_made"  # ``latest`` before a prompt was made
    USER_CHANGED = "user_changed"  # another user signed in, or this one was forgotten, while it ran
    NOT_FINITE = "not_finite"  # NaN or infinity in the encoder's output
    BAD_SHAPE = "bad_shape"
    ENCODE_FAILED = "encode_failed"
    NO_USER = "no_user"  # an event before ``set_user``
    OTHER_USER = "other_user"  # an event of somebody who is not signed in
    UNKNOWN_ITEM = "unknown_item"  # an event of an item that the release does not have
    BAD_EVENT = "bad_event"
