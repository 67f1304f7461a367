"""Writing to Redis: the newest event time wins, decided inside Redis.

A value's first 20 bytes carry its watermark and sequence (``schemas.state``). One script compares them with what is
stored and writes or drops, so there is nothing between a read and a write that another writer could enter.

A user who was forgotten leaves a marker: the sequence of the tombstone, and the event time up to which nothing may be
kept. As long as it lives, no window from before is written: a slow worker, a second reading of the topic or a replay of
the events can't bring the user back.

All keys of one call share the user's hash tag, hence a slot of a cluster.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from nearline.redis_link import ERRORS, Call, Script, connect, failure, is_cluster, publish, refresh
from nearline.written import WrittenTo
from schemas.errors import StoreError
from schemas.keys import INVALIDATION_CHANNEL, candidates_key, state_key
from schemas.plan import Plan
from schemas.state import HEADER, STATE_MAGIC, Candidates, IntentState, encode_candidates, encode_state

BATCH = 128
FORGOTTEN_FOR_S = 90 * 86_400
"""A worker writes the markers anew when it starts, so this need only be longer than a worker runs."""
MARKER = struct.Struct(">QQ")

# Watermark and sequence are unsigned 64-bit numbers. Lua's numbers are exact to 2^53 only and its strings compare by
# the server's collation: so they are compared as 32-bit numbers, the highest first.
_NEWER = """
local function newer(a, b)
  for i = 1, #a, 4 do
    local x, y = struct.unpack('>I4', a, i), struct.unpack('>I4', b, i)
    if x ~= y then return x > y end
  end
  return false
end
"""
_PUT = Script(
    _NEWER
    + """
local new, gone = string.sub(ARGV[1], 1, 20), redis.call('GET', KEYS[2])
if gone and #gone == 16 then
  if not newer(string.sub(new, 13), string.sub(gone, 1, 8)) then return 0 end
  if not newer(string.sub(new, 5, 12), string.sub(gone, 9)) then return 0 end
end
local old = redis.call('GETRANGE', KEYS[1], 0, 19)
local same_kind = #old == 20 and string.sub(old, 1, 4) == string.sub(new, 1, 4)
if same_kind and newer(string.sub(old, 5), string.sub(new, 5)) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
)
# What is newer than the tombstone, or happened after the user was forgotten, is not touched: telling it a second time
# must not cost a user who came back.
_FORGET = Script(
    _NEWER
    + """
local sequence, at = string.sub(ARGV[1], 1, 8), string.sub(ARGV[1], 9)
local gone = redis.call('GET', KEYS[1])
if gone and #gone == 16 then
  if newer(string.sub(gone, 1, 8), sequence) then sequence = string.sub(gone, 1, 8) end
  if newer(string.sub(gone, 9), at) then at = string.sub(gone, 9) end
end
redis.call('SET', KEYS[1], sequence .. at, 'EX', ARGV[2])
for i = 2, #KEYS do
  local old = redis.call('GETRANGE', KEYS[i], 0, 19)
  local kept = #old == 20 and newer(string.sub(old, 13), sequence) and newer(string.sub(old, 5, 12), at)
  if not kept then redis.call('DEL', KEYS[i]) end
end
return 1
"""
)


class Written(NamedTuple):
    """What became of a batch: values written, and values dropped because the store had newer ones."""

    written: int
    stale: int


class Forgotten(NamedTuple):
    """A user to forget: what is not newer than the tombstone's sequence and than ``at`` goes."""

    user_id: str
    sequence: int = 0
    at: int = 0  # event time, ms


class UnreachedError(StoreError):
    """A part of a cluster could not be reached. ``users`` were not written; all others of the call were."""

    def __init__(self, error: Exception, users: frozenset[str], written: Written) -> None:
        told = failure(error)
        super().__init__(told.problem, where=told.where, mend=told.mend)
        self.users = users
        self.written = written


class StateStore:
    """States and candidates of users in one Redis or a cluster. Not for use by several threads at once.

    Every method raises ``StoreError`` when Redis can't be reached or refuses; calling again with the same
    arguments is safe. From a cluster it is an ``UnreachedError`` where nodes, and with them users, are out of reach.
    """

    def __init__(self, client: Any, *, state_ttl_s: float, candidates_ttl_s: float) -> None:
        """``client`` is a ``redis.Redis`` or ``redis.RedisCluster`` that returns bytes."""
        self._client = client
        self.written_to = WrittenTo(client)
        self._state_ttl_ms = int(state_ttl_s * 1000)
        self._candidates_ttl_ms = int(candidates_ttl_s * 1000)

    @classmethod
    def connect(cls, url: str, plan: Plan) -> StateStore:
        """The store at ``url``, with the plan's lifetimes (``usable_for``). See ``redis_link.connect``."""
        return cls(
            connect(url),
            state_ttl_s=plan.assets["intent_state"].usable_for,
            candidates_ttl_s=plan.assets["candidates"].usable_for,
        )

    def write_states(self, states: Sequence[tuple[IntentState, int]]) -> Written:
        """Write states, each with its sequence, and announce the users that changed to the look-up services."""
        now = time.time() * 1000
        calls = [
            self._put(
                state.user_id,
                state_key(state.user_id),
                encode_state(state, number),
                max(1, int(self._state_ttl_ms - max(0.0, now - state.made_at))),
            )
            for state, number in states
        ]
        return self._run(_PUT, calls, announce=True)

    def keeps(self, came_at: int) -> bool:
        """Whether a state of a window that came then (ms; 0: not known) would still be used."""
        return not came_at or time.time() * 1000 - came_at < self._state_ttl_ms

    def write_candidates(self, lists: Sequence[tuple[Candidates, int]]) -> Written:
        """Write candidate lists, each with its sequence."""
        calls = [
            self._put(one.user_id, candidates_key(one.user_id), encode_candidates(one, number), self._candidates_ttl_ms)
            for one, number in lists
        ]
        return self._run(_PUT, calls, announce=False)

    def forget(self, users: Sequence[Forgotten]) -> None:
        """Delete what is kept of users, leave a marker for each, and announce it."""
        calls = [
            (one.user_id, Call(_forget_keys(one.user_id), (MARKER.pack(one.sequence, one.at), FORGOTTEN_FOR_S)))
            for one in users
        ]
        self._run(_FORGET, calls, announce=True)

    def marker(self, user_id: str) -> Forgotten | None:
        """What keeps a forgotten user away."""
        raw = self._ask(lambda: self._client.get(forgotten_key(user_id)))
        return Forgotten(user_id, *MARKER.unpack(raw)) if raw and len(raw) == MARKER.size else None

    def num_kept(self, user_id: str) -> int:
        """How many values are kept of a user: state and candidates."""
        return self._ask(lambda: self._client.exists(state_key(user_id), candidates_key(user_id)))

    def newest_time(self, user_id: str) -> int:
        """The event time (ms) of the newest event that is kept of a user; 0 without one."""
        raw: bytes = self._ask(lambda: self._client.getrange(state_key(user_id), 0, HEADER.size - 1))
        return HEADER.unpack(raw)[1] if len(raw) == HEADER.size and raw.startswith(STATE_MAGIC) else 0

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    @staticmethod
    def _put(user_id: str, key: str, value: bytes, ttl_ms: int) -> tuple[str, Call]:
        return user_id, Call((key, forgotten_key(user_id)), (value, ttl_ms))

    def _run(self, script: Script, calls: Sequence[tuple[str, Call]], *, announce: bool) -> Written:
        """Run it for each (user id, call). Users out of reach are told at the end, when all others are served."""
        num_changed, num_failed = 0, 0
        unreached: dict[str, Exception] = {}
        for start in range(0, len(calls), BATCH):
            batch = calls[start : start + BATCH]
            answers = script.run(self._client, [call for _, call in batch])
            changed = [user for (user, _), answer in zip(batch, answers, strict=True) if answer == 1]
            failed = {user: one for (user, _), one in zip(batch, answers, strict=True) if isinstance(one, Exception)}
            if failed and not is_cluster(self._client):
                raise failure(next(iter(failed.values())))
            num_changed += len(changed)
            num_failed += sum(user in failed for user, _ in batch)
            unreached |= failed
            if announce:
                self._announce(changed)
        written = Written(num_changed, len(calls) - num_changed - num_failed)
        if unreached:
            refresh(self._client)
            raise UnreachedError(next(iter(unreached.values())), frozenset(unreached), written)
        return written

    def _ask(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except ERRORS as error:
            raise failure(error) from None

    def _announce(self, user_ids: list[str]) -> None:
        if user_ids:
            self._ask(lambda: publish(self._client, INVALIDATION_CHANNEL, msgspec.msgpack.encode(user_ids)))


def forgotten_key(user_id: str) -> str:
    """Where the marker of a forgotten user is: big-endian uint64, sequence of the tombstone and event time in ms."""
    return state_key(user_id).removesuffix("state") + "forgotten"


def _forget_keys(user_id: str) -> tuple[str, str, str]:
    return forgotten_key(user_id), state_key(user_id), candidates_key(user_id)
