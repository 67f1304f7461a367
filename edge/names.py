"""The closed sets of reasons of this room. ``vectors/reasons.json`` holds them for the SDKs."""

from __future__ import annotations

from enum import StrEnum


class EdgeReason(StrEnum):
    """Why the device has no prompt embedding, or what became of an event.

    A word that ``schemas.names.Reason`` has too means the same there.
    """

    OK = "ok"
    NOT_LOADED = "not_loaded"  # no bundle, the encoder is still loading, or it does not load
    TOO_OLD = "too_old"  # the bundle, or the last prompt, is past its usable_for
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


class BundleReason(StrEnum):
    """What became of a bundle that was offered; whatever is not OK leaves the present one in use."""

    OK = "ok"
    UNREACHABLE = "unreachable"  # no network, or the server can't be reached
    HTTP_ERROR = "http_error"  # the server answered, but not with the file
    TIMED_OUT = "timed_out"
    NO_OFFER = "no_offer"  # nothing is rolled out to this device or this version of the app
    NOT_NEWER = "not_newer"  # an offer older than one seen before: a stale cache, or a replay
    UNKNOWN_KEY = "unknown_key"  # signed with a key that this app does not pin (any more)
    BAD_SIGNATURE = "bad_signature"
    CORRUPT = "corrupt"  # not the bytes that were signed, or not what they should be
    TOO_NEW = "too_new"  # of a format that this version can't read
    RUNTIME_TOO_OLD = "runtime_too_old"  # needs a newer onnxruntime than the device has
    TOO_LARGE = "too_large"
    TOO_OLD = "too_old"  # past its usable_for
    DOES_NOT_LOAD = "does_not_load"  # the runtime refuses the graph
