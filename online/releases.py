"""Which releases serve: follows the registry, loads beside the old one, keeps the old while its states still come.

At most three are loaded: the current one, the one before it, and a canary that is tried by a share of the users.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from online.deadline import Clock
from online.graph import Array
from online.release import Release, load
from schemas.canary import in_share
from schemas.errors import BeforehandError
from schemas.locations import public_key_path, releases_dir
from schemas.registry import Registry, ReleaseRow
from schemas.release import load_public_key

EVERY_S = 1.0
RETRY_S = 30.0
UNUSED_FOR_S = 300.0
"""The previous release, and a canary that ended, are unloaded when no state of theirs has come for so long."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What may answer. One object, replaced as a whole: a request sees all of the old ones or all of the new."""

    current: Release | None = None
    previous: Release | None = None
    canary: Release | None = None
    share: float = 0.0  # of the users, for the canary; 0: it has ended and only answers for its states
    gone: Mapping[str, Array] = field(default_factory=dict[str, Array])
    """By the id of a release: bool [num_items], what it still recalls and another one knows to be withdrawn."""

    @property
    def all(self) -> list[Release]:
        """Those that are loaded."""
        return [release for release in (self.current, self.previous, self.canary) if release is not None]

    @property
    def ids(self) -> frozenset[str]:
        """Of the releases that are loaded."""
        return frozenset(release.id for release in self.all)

    @property
    def roles(self) -> dict[str, str]:
        """What each is, by id."""
        named = {"current": self.current, "previous": self.previous, "canary": self.canary}
        return {release.id: role for role, release in named.items() if release is not None}

    def of(self, release_id: str) -> Release | None:
        """The release of a state, if it is loaded."""
        return next((release for release in self.all if release.id == release_id), None)

    def of_state(self, release_id: str) -> Release | None:
        """The release that answers for a state: one that takes it over, else the one that it was made with."""
        grown = (release for release in (self.current, self.canary) if release and release.takes_over(release_id))
        return next(grown, None) or self.of(release_id)

    def without_state(self, user_id: str) -> Release | None:
        """What answers a user of whom there is no state that can be used."""
        canary = self.canary
        return canary if canary is not None and in_share(user_id, canary.id, self.share) else self.current


@dataclass(frozen=True, slots=True)
class Tried:
    """A canary and its share of the users."""

    row: ReleaseRow
    share: float


class ReleaseReport(msgspec.Struct, frozen=True):
    """``GET /v1/releases``. ``problems`` are of releases that do not serve, by id (``registry``: it can't be read)."""

    current: str | None
    previous: str | None
    answered: dict[str, int]  # answers by release, of those loaded
    usual_ms: dict[str, float]  # of the current one's graphs, when it was loaded
    problems: dict[str, str]
    canary: str | None = None
    canary_share: float = 0.0  # of the users; 0 while one that ended still answers for its states
    load_failures: int = 0  # since the start


def load_row(row: ReleaseRow, beside: Sequence[Release] = ()) -> Release:
    """Load a registered release with the configured public key. Raises BeforehandError."""
    return load(releases_dir() / row.path, load_public_key(public_key_path()), row.id, beside)


class Releases:
    """Reads are lock-free; one thread (or a test) calls ``tick``."""

    def __init__(
        self,
        current: Callable[[], ReleaseRow | None] | None = None,
        loader: Callable[[ReleaseRow, Sequence[Release]], Release] = load_row,
        clock: Clock = time.monotonic,
        tried: Callable[[], Tried | None] | None = None,
    ) -> None:
        """``current`` and ``tried`` say what should serve; by default the registry does, both of them."""
        registry = _FromRegistry()
        self._current = current or registry.current
        self._tried = tried or ((lambda: None) if current else registry.tried)
        self._loader = loader
        self._clock = clock
        self._used_at: dict[str, float] = {}
        self._made_at: dict[str, int] = {}  # by the registry: an insertion leaves its parent's in the manifest
        self._answered: dict[str, int] = {}
        self._failed: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        self._left: list[Loaded] = []
        self.num_failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="releases", daemon=True)
        self.loaded = Loaded()

    def used(self, release: Release) -> None:
        """A request is answered by this release."""
        self._used_at[release.id] = self._clock()
        self._answered[release.id] = self._answered.get(release.id, 0) + 1

    def report(self) -> ReleaseReport:
        """What is loaded, and why what should be is not."""
        loaded = self.loaded
        current = loaded.current
        return ReleaseReport(
            current=current.id if current else None,
            previous=loaded.previous.id if loaded.previous else None,
            answered={release.id: self._answered.get(release.id, 0) for release in loaded.all},
            usual_ms={k: round(v * 1000, 3) for k, v in current.usual_s.items()} if current else {},
            problems=dict(self._problems),
            canary=loaded.canary.id if loaded.canary else None,
            canary_share=loaded.share,
            load_failures=self.num_failures,
        )

    def start(self) -> None:
        """Follow the registry from a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop following; what is loaded stays."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def tick(self) -> None:
        """One look at the registry. It raises nothing: what serves goes on serving."""
        self._left.clear()
        try:
            row, tried = self._current(), self._tried()
        except (BeforehandError, SQLAlchemyError) as error:
            self._complain("registry", str(error))
            return
        wanted = {one.id for one in (row, tried and tried.row) if one}
        self._problems = {name: problem for name, problem in self._problems.items() if name in wanted}
        self._failed = {name: at for name, at in self._failed.items() if name in wanted}
        if row is not None and not self._serves(row.id):
            self._switch(row)
        self._try(tried)
        self._unload()

    def _follow(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.tick()

    def _serves(self, release_id: str) -> bool:
        return self.loaded.current is not None and self.loaded.current.id == release_id

    def _switch(self, row: ReleaseRow) -> None:
        """Make ``row`` current. The old one becomes the previous, so a rollback within its time loads nothing; one that
        grew by insertion takes its parent's place, and the previous stays."""
        before = self.loaded
        release = before.of(row.id) or self._load(row)
        if release is None:
            return
        old = before.current
        if old is not None:
            self._used_at[old.id] = self._clock()
        tried = before.canary is not release
        if old is not None and release.takes_over(old.id):
            old = before.previous
        self._replace(Loaded(release, old, before.canary if tried else None, before.share if tried else 0.0))
        log.info("release %s serves, the previous is %s", release.id, old.id if old else "none")

    def _try(self, tried: Tried | None) -> None:
        """Let the canary's share of the users be served by it; one that does not load serves nobody."""
        before = self.loaded
        canary, share = before.canary, 0.0
        if tried is not None and before.current is not None and tried.row.id != before.current.id:
            found = before.of(tried.row.id) or self._load(tried.row)
            if found is not None:
                canary, share = found, tried.share
        if canary is None or (canary is before.canary and share == before.share):
            return
        self._used_at[canary.id] = self._clock()
        previous = before.previous if before.previous is not canary else None
        self._replace(Loaded(before.current, previous, canary, share))
        log.info("release %s is tried by %.3g of the users", canary.id, share)

    def _load(self, row: ReleaseRow) -> Release | None:
        """The release; None when it does not load, or did not just now."""
        failed_at = self._failed.get(row.id)
        if failed_at is not None and self._clock() - failed_at < RETRY_S:
            return None
        try:
            release = self._loader(row, self.loaded.all)
        except (BeforehandError, OSError) as error:
            self._failed[row.id] = self._clock()
            self.num_failures += 1
            self._complain(row.id, str(error))
            return None
        self._made_at[row.id] = row.made_at
        self._failed.pop(row.id, None)
        self._problems.pop(row.id, None)
        return release

    def _unload(self) -> None:
        """Drop those that ended and of which no state has come for long."""
        loaded = self.loaded
        previous = self._still_used(loaded.previous)
        canary = loaded.canary if loaded.share else self._still_used(loaded.canary)
        if previous is not loaded.previous or canary is not loaded.canary:
            self._replace(Loaded(loaded.current, previous, canary, loaded.share))

    def _replace(self, loaded: Loaded) -> None:
        """The one before is kept until the next tick: else the last request that uses a release would have to free it,
        on the event loop."""
        self._left.append(self.loaded)
        self._made_at = {name: at for name, at in self._made_at.items() if name in loaded.ids}
        self.loaded = replace(loaded, gone=_gone(loaded, self._made_at))

    def _still_used(self, old: Release | None) -> Release | None:
        if old is None or self._clock() - self._used_at[old.id] <= UNUSED_FOR_S:
            return old
        self._answered.pop(old.id, None)
        log.info("release %s is unloaded: no state of it came for %.0f s", old.id, UNUSED_FOR_S)
        return None

    def _complain(self, what: str, problem: str) -> None:
        if self._problems.get(what) != problem:
            log.error("release %s does not serve: %s", what, problem)
        self._problems[what] = problem


def _gone(loaded: Loaded, made_at: Mapping[str, int]) -> dict[str, Array]:
    """Item changes reach the current release alone; so the newest of those that grew by them knows what is withdrawn,
    whichever is current: one that a build has just made, or that was rolled back to, gets them seconds later."""
    grown = [release for release in loaded.all if release.family]
    gone = dict[str, Array]()
    if not grown:
        return gone
    knows = max(grown, key=lambda release: made_at.get(release.id, 0))
    ids, there = knows.catalogue.item_ids, range(knows.num_live, knows.model.num_items)
    for release in loaded.all:
        if release is not knows:
            get = release.item_numbers.get
            found = np.fromiter((get(ids[number], -1) for number in there), np.int64)  # a list would hold up the loop
            found = found[(found >= 0) & (found < release.num_live)]
            if len(found):
                gone[release.id] = np.zeros(release.model.num_items, bool)
                gone[release.id][found] = True
    return gone


class _FromRegistry:
    """Asks the registry, which may not be there yet when the service starts."""

    def __init__(self) -> None:
        self._opened: Registry | None = None

    def current(self) -> ReleaseRow | None:
        return self._registry().current()

    def tried(self) -> Tried | None:
        registry = self._registry()
        pointer = registry.pointer()
        return Tried(registry.get(pointer.canary), pointer.canary_share) if pointer.canary else None

    def _registry(self) -> Registry:
        if self._opened is None:
            self._opened = Registry()
        return self._opened
