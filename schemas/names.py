"""The closed sets of words. A value outside its set is refused when it is decoded."""

from __future__ import annotations

from enum import StrEnum


class Tier(StrEnum):
    """Where an asset is computed."""

    OFFLINE = "offline"
    NEARLINE = "nearline"
    EDGE = "edge"
    ONLINE = "online"


class Rung(StrEnum):
    """The ways to answer, best first. ``NONE`` is an answer without items (nothing could be allowed)."""

    GENERATE = "generate"
    NEARLINE = "nearline"
    COHORT = "cohort"
    POPULAR = "popular"
    NONE = "none"


class Kind(StrEnum):
    """What a user did to an item. The position in this list is the kind's number in the model (from 1)."""

    IMPRESSION = "impression"
    CLICK = "click"
    CART = "cart"
    PURCHASE = "purchase"

    @property
    def number(self) -> int:
        """1 … 4; 0 is padding."""
        return KIND_NUMBER[self]


KIND_NUMBER: dict[Kind, int] = {kind: number for number, kind in enumerate(Kind, start=1)}


class State(StrEnum):
    """The state of an asset in one answer."""

    FRESH = "FRESH"
    STALE = "STALE"  # older than fresh_for, still used
    EMPTY = "EMPTY"  # there, but holds nothing to use
    MISSING = "MISSING"  # the store answered: no such key
    EXPIRED = "EXPIRED"  # older than usable_for, not used
    TIMED_OUT = "TIMED_OUT"  # the deadline came first
    UNAVAILABLE = "UNAVAILABLE"  # the store could not be asked
    MISMATCHED = "MISMATCHED"  # of another release


class Reason(StrEnum):
    """Why an asset was not used, or why a better rung did not answer."""

    OK = "ok"
    NOT_SENT = "not_sent"  # the request carried no prompt
    NO_STATE = "no_state"  # a new user, or one whose state expired
    TOO_OLD = "too_old"
    OTHER_RELEASE = "other_release"
    BAD_SHAPE = "bad_shape"
    NOT_FINITE = "not_finite"  # NaN or infinity
    WRONG_KEY = "wrong_key"  # the value names another user: never returned
    UNDECODABLE = "undecodable"
    STORE_TIMEOUT = "store_timeout"
    STORE_DOWN = "store_down"
    CIRCUIT_OPEN = "circuit_open"
    NO_TIME = "no_time"  # the rung's usual time exceeds what remains
    NO_CAPACITY = "no_capacity"
    DECODE_TIMEOUT = "decode_timeout"
    DECODE_FAILED = "decode_failed"
    NOT_LOADED = "not_loaded"  # no release is loaded
    NO_CANDIDATES = "no_candidates"
    NOTHING_ALLOWED = "nothing_allowed"  # exclusions and allow-lists leave no item
