"""The releases in use: the current one for most users, a canary for its share; each with what encodes and lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nearline.candidates import ListMaker
from nearline.release import Release
from nearline.states import Made, Reading, StateMaker
from nearline.stepping import ROW_CACHE_BYTES
from schemas.canary import Split
from schemas.state import Candidates, IntentState


@dataclass(frozen=True)
class Serving:
    """Loaded releases, and who is encoded by which."""

    current: Release
    canary: Release | None = None
    share: float = 0.0  # of the users, for the canary

    @property
    def split(self) -> Split:
        """The same by ids."""
        return Split(self.current.id) if self.canary is None else Split(self.current.id, self.canary.id, self.share)

    @property
    def releases(self) -> dict[str, Release]:
        """By id."""
        return {one.id: one for one in (self.current, self.canary) if one is not None}

    def goes_on(self, before: Split) -> bool:
        """Whether every state of ``before`` is as good as one of now: nothing but items came or went."""
        same = (before.canary, before.share) == (self.split.canary, self.split.share)
        return same and self.current.takes_over(before.current)

    def __str__(self) -> str:
        if self.canary is None:
            return f"release {self.current.id}"
        return f"release {self.current.id}, and {self.canary.id} for {self.share:.3g} of the users"


class Makers:
    """Makes each user's state and list with the user's own release: no state holds anything of two."""

    def __init__(
        self, serving: Serving, before: Makers | None = None, *, row_cache_bytes: int = ROW_CACHE_BYTES
    ) -> None:
        """``before``: what was in use; what it has of the same releases is used again."""
        self.serving, self.split = serving, serving.split
        self._states: dict[str, StateMaker] = {}
        self._lists: dict[str, ListMaker] = {}
        for name, release in serving.releases.items():
            known = before is not None and name in before._states
            self._states[name] = before._states[name] if before and known else StateMaker(release, row_cache_bytes)
            self._lists[name] = before._lists[name] if before and known else ListMaker(release)

    def is_done(self, reading: Reading) -> bool:
        """Whether the release that encoded this record before is still the user's, or one it grew from: its state
        stays as it is."""
        own = self.split.of(reading.user_id)
        before = {split.of(reading.user_id) for split in reading.record.before}
        return bool(before) and all(one == own or self.serving.releases[own].takes_over(one) for one in before)

    def states(self, readings: Sequence[Reading]) -> Made:
        """States of windows, one per user."""
        made = [self._states[name].make(own) for name, own in self._shared(readings).items()]
        return Made(
            [state for one in made for state in one.states],
            [refused for one in made for refused in one.refused],
            sum(one.num_unknown for one in made),
            sum(one.num_rows for one in made),
            sum(one.num_whole for one in made),
        )

    def forget(self, users: Iterable[str]) -> None:
        """Keep nothing of them in memory."""
        for maker in self._states.values():
            maker.forget(users)

    def lists(self, states: Sequence[tuple[IntentState, int]]) -> list[tuple[Candidates, int]]:
        """Lists for states with their sequences; what is of a release that is not in use any more is left out."""
        made: list[tuple[Candidates, int]] = []
        for name, maker in self._lists.items():
            own = [one for one in states if one[0].release == name]
            lists = maker.make([state for state, _ in own])
            made += [(one, number) for one, (_, number) in zip(lists, own, strict=True)]
        return made

    def _shared(self, readings: Sequence[Reading]) -> dict[str, list[Reading]]:
        if self.split.canary is None:
            return {self.split.current: list(readings)}
        found: dict[str, list[Reading]] = {}
        for reading in readings:
            found.setdefault(self.split.of(reading.user_id), []).append(reading)
        return found
