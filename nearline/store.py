"""Writing to Redis: the newest event time wins, decided inside Redis.

A value's first 20 bytes carry its watermark and sequence (``schemas.state``). One script compares them with what is
stored and writes or drops, so there is nothing between a read and a write that another writer could enter.

A user who was forgotten leaves a marker with the sequence of the tombstone. For as long as it lives, no window from
before the tombstone is written: a slow worker or a second reading of the topic can't bring the user back.

All keys of one call share the user's hash tag, hence a slot of a cluster.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from redis.exceptions import NoScriptError, RedisError

from nearline.redis_link import connect, failure
from schemas.keys import INVALIDATION_CHANNEL, candidates_key, state_key
from schemas.plan import Plan
from schemas.state import Candidates, IntentState, encode_candidates, encode_state

BATCH = 128
FORGOTTEN_FOR_S = 7 * 86_400
"""Longer than the topic keeps a user's records behind the tombstone that compacts them away."""

# Watermark and sequence are unsigned 64-bit numbers. Lua's numbers are exact to 2^53 only and its strings compare by
# the server's collation: so they are compared as 32-bit numbers, the highest first.
_PUT = """
local function newer(a, b)
  for i = 1, #a, 4 do
    local x, y = struct.unpack('>I4', a, i), struct.unpack('>I4', b, i)
    if x ~= y then return x > y end
  end
  return false
end
local new, gone = string.sub(ARGV[1], 1, 20), redis.call('GET', KEYS[2])
if gone and not newer(string.sub(new, 13), gone) then return 0 end
local old = redis.call('GETRANGE', KEYS[1], 0, 19)
local same_kind = #old == 20 and string.sub(old, 1, 4) == string.sub(new, 1, 4)
if same_kind and newer(string.sub(old, 5), string.sub(new, 5)) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""


class Written(NamedTuple):
    """What became of a batch: values written, and values dropped because the store had newer ones."""

    written: int
    stale: int


class StateStore:
    """States and candidates of users in one Redis. Not for use by several threads at once.

    Every method raises ``StoreError`` when Redis can't be reached or refuses; calling again with the same
    arguments is safe.
    """

    def __init__(self, client: Any, *, state_ttl_s: float, candidates_ttl_s: float) -> None:
        """``client`` is a ``redis.Redis`` that returns bytes."""
        self._client = client
        self._state_ttl_ms = int(state_ttl_s * 1000)
        self._candidates_ttl_ms = int(candidates_ttl_s * 1000)
        self._digest = ""

    @classmethod
    def connect(cls, url: str, plan: Plan) -> StateStore:
        """The store at ``url``, with the plan's lifetimes (``usable_for``). Connects at the first use."""
        return cls(
            connect(url),
            state_ttl_s=plan.assets["intent_state"].usable_for,
            candidates_ttl_s=plan.assets["candidates"].usable_for,
        )

    def write_states(self, states: Sequence[tuple[IntentState, int]]) -> Written:
        """Write states, each with its sequence, and announce the users that changed to the look-up services."""
        total = Written(0, 0)
        for start in range(0, len(states), BATCH):
            batch = states[start : start + BATCH]
            values = [(state.user_id, state_key(state.user_id), encode_state(state, number)) for state, number in batch]
            changed = self._put(values, self._state_ttl_ms)
            self._announce(changed)
            total = Written(total.written + len(changed), total.stale + len(batch) - len(changed))
        return total

    def write_candidates(self, lists: Sequence[tuple[Candidates, int]]) -> Written:
        """Write candidate lists, each with its sequence."""
        values = [(one.user_id, candidates_key(one.user_id), encode_candidates(one, number)) for one, number in lists]
        written = sum(
            len(self._put(values[start : start + BATCH], self._candidates_ttl_ms))
            for start in range(0, len(values), BATCH)
        )
        return Written(written, len(lists) - written)

    def forget(self, users: Sequence[tuple[str, int]]) -> None:
        """Delete all that is kept of users, each with the sequence of its tombstone, and announce it."""
        if not users:
            return
        try:
            pipe = self._client.pipeline(transaction=False)
            for user_id, sequence in users:
                # The marker comes first: a writer that enters in between is refused or deleted.
                pipe.set(forgotten_key(user_id), struct.pack(">Q", sequence), ex=FORGOTTEN_FOR_S)
                pipe.delete(state_key(user_id), candidates_key(user_id))
            pipe.execute()
        except RedisError as error:
            raise failure(error) from None
        self._announce([user_id for user_id, _ in users])

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _put(self, values: Sequence[tuple[str, str, bytes]], ttl_ms: int) -> list[str]:
        """Run the script for each (user id, key, value); returns the users whose value was written."""
        try:
            self._digest = self._digest or self._client.script_load(_PUT)
            answers = self._run(values, ttl_ms)
            if any(isinstance(answer, NoScriptError) for answer in answers):  # the server was restarted
                self._digest = self._client.script_load(_PUT)
                answers = self._run(values, ttl_ms)
        except RedisError as error:
            raise failure(error) from None
        for answer in answers:
            if isinstance(answer, RedisError):
                raise failure(answer)
        return [user_id for (user_id, _, _), answer in zip(values, answers, strict=True) if answer]

    def _run(self, values: Sequence[tuple[str, str, bytes]], ttl_ms: int) -> list[Any]:
        pipe = self._client.pipeline(transaction=False)
        for user_id, key, value in values:
            pipe.evalsha(self._digest, 2, key, forgotten_key(user_id), value, ttl_ms)
        return pipe.execute(raise_on_error=False)

    def _announce(self, user_ids: list[str]) -> None:
        if not user_ids:
            return
        try:
            self._client.publish(INVALIDATION_CHANNEL, msgspec.msgpack.encode(user_ids))
        except RedisError as error:
            raise failure(error) from None


def forgotten_key(user_id: str) -> str:
    """Where the marker of a forgotten user is: big-endian uint64, the sequence of the tombstone."""
    return state_key(user_id).removesuffix("state") + "forgotten"
