"""Which users a canary gets: one rule, so that the near-line worker and the look-up service agree without asking."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

_RANGE = 2**64


def in_share(user_id: str, release_id: str, share: float) -> bool:
    """Whether the user is among the ``share`` (0 to 1) of the users who try the release.

    The place of a user is the first 64 bits of BLAKE2b over ``release_id``, a zero byte and ``user_id`` in UTF-8: even
    over the users, other for each release, the same in every process. A larger share only adds users.
    ``user_id`` has passed ``schemas.keys.check_user_id``.
    """
    place = blake2b(f"{release_id}\0{user_id}".encode(), digest_size=8).digest()
    return int.from_bytes(place) < share * _RANGE


class Split(msgspec.Struct, frozen=True):
    """Who is served by which release, by their ids; without a canary all by the current one."""

    current: str
    canary: str | None = None
    share: float = 0.0

    def of(self, user_id: str) -> str:
        """The release that the user belongs to."""
        if self.canary is not None and in_share(user_id, self.canary, self.share):
            return self.canary
        return self.current

    def __str__(self) -> str:
        """``current`` or ``current+canary@share``; ``read_split`` reads it back."""
        return self.current if self.canary is None else f"{self.current}+{self.canary}@{self.share!r}"


def read_split(text: str) -> Split:
    """What ``str`` of a Split gave; a text of another form is taken for the id of a release."""
    current, plus, rest = text.partition("+")
    canary, at, share = rest.rpartition("@")
    try:
        return Split(current, canary, float(share)) if plus and at else Split(text)
    except ValueError:
        return Split(text)
