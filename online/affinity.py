"""Each user to one instance, so that each state is cached once: highest random weight, and a word for proxies.

Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998. The order of the instances differs from
user to user, so a lost one's users are spread over all others and nobody else moves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import blake2b

from online.deadline import Clock

HEADER = "x-beforehand-affinity"
"""What a proxy hashes: the user's token, so that neither it nor its logs learn an id."""
AVOID_S = 2.0
"""An instance that could not be reached is the last choice for so long."""


def token(user_id: str) -> str:
    """Sixteen hex digits; equal ids, equal tokens."""
    return blake2b(user_id.encode(), digest_size=8, person=b"bh-affinity").hexdigest()


def ranked(user_id: str, instances: Sequence[str]) -> list[str]:
    """The user's instances, the best first; the order that they are given in does not matter."""
    user = user_id.encode()

    def weight(instance: str) -> bytes:
        return blake2b(user, digest_size=8, key=blake2b(instance.encode(), digest_size=32).digest()).digest()

    return sorted(instances, key=weight, reverse=True)


class Instances:
    """The addresses of a service, and which of them could not be reached lately."""

    def __init__(self, addresses: Sequence[str], clock: Clock = time.monotonic) -> None:
        self._addresses = tuple(address.rstrip("/") for address in addresses)
        self._clock = clock
        self._failed_at: dict[str, float] = {}

    def of(self, user_id: str) -> list[str]:
        """Where to ask for this user, best first; what failed lately comes last."""
        if len(self._addresses) == 1:
            return list(self._addresses)
        since = self._clock() - AVOID_S
        order = ranked(user_id, self._addresses)
        return sorted(order, key=lambda address: self._failed_at.get(address, float("-inf")) > since)

    def failed(self, address: str) -> None:
        """It could not be reached."""
        self._failed_at[address] = self._clock()
