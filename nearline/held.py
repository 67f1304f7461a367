"""Writing to a store of which a part may be out of reach: a broken node costs its own users, the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from nearline.store import Forgotten, StateStore, UnreachedError, Written
from schemas.cli import say
from schemas.state import IntentState

MAX_HELD = 10_000
"""With more users waiting than this nothing more is read: memory is bounded, and the topic keeps the rest."""
RETRY_EVERY_S = 2.0


class HeldWriter:
    """Writes to the store, and holds what a node that is out of reach should have got until it is back.

    As long as ``num_held`` is not 0, offsets must not be committed: what is held is in memory only.
    """

    def __init__(self, store: StateStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._states: dict[str, tuple[IntentState, int]] = {}
        self._forgotten: dict[str, Forgotten] = {}
        self._retry_at = 0.0

    @property
    def num_held(self) -> int:
        """Users who wait."""
        return len(self._states.keys() | self._forgotten.keys())

    def write(self, forgotten: Sequence[Forgotten], states: Sequence[tuple[IntentState, int]]) -> Written:
        """Write a batch, and what is held when it is time to try again. Doing it twice changes nothing.

        Raises:
            StoreError: nothing could be written, or too many users wait already: call again with the same batch.
        """
        before = self.num_held
        due = self._clock() >= self._retry_at
        try:
            self._forget([*(self._forgotten.values() if due else ()), *forgotten])
            return self._put({**(self._states if due else {}), **{one[0].user_id: one for one in states}})
        finally:
            self._tell(before)

    def retry(self) -> Written | None:
        """Try what is held again, when it is time. Raises ``StoreError`` as ``write`` does."""
        return self.write((), ()) if self.num_held and self._clock() >= self._retry_at else None

    def _forget(self, users: Sequence[Forgotten]) -> None:
        failed: frozenset[str] = frozenset()
        try:
            self._store.forget(users)
        except UnreachedError as error:
            self._hold(error)
            failed = error.users
        for one in users:
            if one.user_id in failed:
                self._forgotten[one.user_id] = one
            else:
                self._forgotten.pop(one.user_id, None)

    def _put(self, states: Mapping[str, tuple[IntentState, int]]) -> Written:
        failed: frozenset[str] = frozenset()
        try:
            written = self._store.write_states(list(states.values()))
        except UnreachedError as error:
            self._hold(error)
            failed, written = error.users, error.written
        for user_id, one in states.items():
            if user_id in failed:
                self._states[user_id] = one
            else:
                self._states.pop(user_id, None)
        return written

    def _hold(self, error: UnreachedError) -> None:
        if self.num_held + len(error.users) > MAX_HELD:
            raise error
        self._retry_at = self._clock() + RETRY_EVERY_S

    def _tell(self, before: int) -> None:
        if self.num_held and not before:
            say(f"a part of Redis is out of reach: {self.num_held} users wait for it, the others go on")
        if before and not self.num_held:
            say("all of Redis works again; nobody waits")
