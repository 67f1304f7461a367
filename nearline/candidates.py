"""Candidate lists made near-line: the ``nearline`` rung, for the users most likely to come back soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from heapq import nlargest

import numpy as np

from nearline.release import Array, Release
from schemas.graphs import decoder_arrays
from schemas.state import Candidates, IntentState

MAX_BATCH = 4
"""A decoder's batch: more saves nothing, and encoding waits for it."""
MAX_WAITING = 1_000


class ListMaker:
    """Runs the decoder of one release on states of the same release."""

    def __init__(self, release: Release) -> None:
        self._release = release
        names = {given.name for given in release.decoder.get_inputs()}
        arrays = {name: release.arrays[name] for name in decoder_arrays(release.model.levels) if name in names}
        fixed: dict[str, Array] = {**arrays, "weights": np.asarray(release.model.weights, np.float32)}
        # The exporter leaves out an input that a graph does not use.
        self._fixed = {name: array for name, array in fixed.items() if name in names}

    def make(self, states: Sequence[IntentState], now_ms: int | None = None) -> list[Candidates]:
        """Lists for states with rows, in their order, with the profile bucket's default prompt."""
        if not states:
            return []
        items, scores = self._release.decoder.run(None, self._request(states) | self._fixed)
        made_at = now_ms if now_ms is not None else int(time.time() * 1000)
        return [
            Candidates(
                user_id=state.user_id,
                release=state.release,
                made_at=made_at,
                watermark=state.watermark,
                items=items[n][items[n] >= 0].tolist(),
                scores=scores[n][items[n] >= 0].tolist(),
            )
            for n, state in enumerate(states)
        ]

    def _request(self, states: Sequence[IntentState]) -> dict[str, Array]:
        model, size = self._release.model, len(states)
        rows = np.stack([np.frombuffer(state.rows, "<f2") for state in states]).astype(np.float32)
        near = np.full((size, model.neighbours), -1, np.int64)
        near_score = np.zeros((size, model.neighbours), np.float32)
        for n, state in enumerate(states):
            near[n, : len(state.neighbour_items)] = state.neighbour_items
            near_score[n, : len(state.neighbour_scores)] = state.neighbour_scores
        nothing = np.full((size, 1), -1, np.int64)
        return {
            "intent": rows.reshape(size, model.state_rows, model.width),
            "prompt": self._release.arrays["prompt_defaults"][[state.bucket for state in states]],
            "neighbour_item": near,
            "neighbour_score": near_score,
            "exclude": nothing,
            "allow": nothing,
        }


class Allowance:
    """At most ``per_s`` acts a second, saved up for one second at most (one act at least, when any is allowed)."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._limit = max(1.0, per_s) if per_s > 0 else 0.0
        self._clock = clock
        self._saved = self._limit
        self._at = clock()

    def take(self, wanted: int) -> int:
        """How many of ``wanted`` acts may be done now."""
        now = self._clock()
        self._saved = min(self._limit, self._saved + (now - self._at) * self._per_s)
        self._at = now
        taken = min(wanted, int(self._saved))
        self._saved -= taken
        return taken


class Waiting:
    """Users whose list could be made next, the most active first: most events in the window, then the newest."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[IntentState, int]] = {}

    def __len__(self) -> int:
        return len(self._states)

    def add(self, states: Iterable[tuple[IntentState, int]]) -> None:
        """States just written, with their sequences; a user's newer state replaces the older."""
        self._states.update({state.user_id: (state, number) for state, number in states if state.num_rows})
        if len(self._states) > MAX_WAITING:
            self._states = {one[0].user_id: one for one in nlargest(MAX_WAITING, self._states.values(), _activity)}

    def take(self, count: int) -> list[tuple[IntentState, int]]:
        """The ``count`` most active users; they wait no longer."""
        taken = nlargest(count, self._states.values(), _activity)
        self.drop(state.user_id for state, _ in taken)
        return taken

    def drop(self, users: Iterable[str]) -> None:
        """Users that must not get a list any more."""
        for user_id in users:
            self._states.pop(user_id, None)

    def keep(self, release_of: Callable[[str], str]) -> None:
        """Only those wait on whose state is of the user's release as ``release_of`` names it."""
        self._states = {user: one for user, one in self._states.items() if one[0].release == release_of(user)}


def _activity(one: tuple[IntentState, int]) -> tuple[int, int]:
    return len(one[0].items), one[0].watermark
