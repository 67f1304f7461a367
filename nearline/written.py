"""How far Redis has been written, kept in Redis itself: so a Redis that lost what it had shows it.

A server that is killed, or a replica that takes over, comes back with what it saved last, which may be nothing. The
offsets in Kafka know nothing of that. So the offset up to which each partition's states are written is noted beside
the states, and a note that is behind what this worker has written means that the states in between are gone.

A cluster loses node by node and no one note could tell: there it is not watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nearline.redis_link import ERRORS, Call, Script, failure, is_cluster
from schemas.keys import PREFIX

WRITTEN_KEY = f"{PREFIX}:written"
"""A hash: partition of the windows topic → offset of the first record that is not written."""
_NOTE = Script(
    """
local noted = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0')
if noted < tonumber(ARGV[2]) then return noted end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return -1
"""
)


class Place(NamedTuple):
    """Where a worker is in a partition: below ``done`` all was written and noted; below ``next`` it is written now."""

    done: int
    next: int


class WrittenTo:
    """The notes in one Redis. Every method raises ``StoreError`` when it does not answer."""

    def __init__(self, client: Any) -> None:
        self._client: Any = None if is_cluster(client) else client

    def note(self, places: Mapping[int, Place]) -> dict[int, int]:
        """Note the places by partition, unless Redis lost something: then partition → offset to go on from."""
        if self._client is None or not places:
            return {}
        calls = [
            Call((WRITTEN_KEY,), (number, place.done, max(place.done, place.next))) for number, place in places.items()
        ]
        answers = _NOTE.run(self._client, calls)
        for answer in answers:
            if isinstance(answer, Exception):
                raise failure(answer) from None
        return {number: int(answer) for number, answer in zip(places, answers, strict=True) if answer >= 0}

    def begin(self, places: Mapping[int, Place]) -> None:
        """Note the places whatever is noted: what is lost is known elsewhere now, and being written again."""
        if self._client is not None and places:
            try:
                self._client.hset(WRITTEN_KEY, mapping={str(number): place.done for number, place in places.items()})
            except ERRORS as error:
                raise failure(error) from None

    def lost(self, places: Mapping[int, Place]) -> dict[int, int]:
        """The partitions of which Redis lost something → offset to go on from; notes nothing."""
        if self._client is None or not places:
            return {}
        try:
            noted = self._client.hmget(WRITTEN_KEY, [str(number) for number in places])
        except ERRORS as error:
            raise failure(error) from None
        found = {number: int(value or 0) for number, value in zip(places, noted, strict=True)}
        return {number: value for number, value in found.items() if value < places[number].done}
