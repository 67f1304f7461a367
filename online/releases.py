"""Which release serves: follows the registry, loads beside the old one, keeps the old while its states still come."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from online.deadline import Clock
from online.release import Release, load
from schemas.errors import BeforehandError
from schemas.locations import public_key_path, releases_dir
from schemas.registry import Registry, ReleaseRow
from schemas.release import load_public_key

EVERY_S = 1.0
RETRY_S = 30.0
UNUSED_FOR_S = 300.0
"""The previous release is unloaded when no state of it has come for so long."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What may answer. One object, replaced as a whole: a request sees the old pair or the new one."""

    current: Release | None = None
    previous: Release | None = None

    @property
    def ids(self) -> frozenset[str]:
        """Of the releases that are loaded."""
        return frozenset(r.id for r in (self.current, self.previous) if r is not None)

    def of(self, release_id: str) -> Release | None:
        """The release of a state, if it is loaded."""
        return next((r for r in (self.current, self.previous) if r is not None and r.id == release_id), None)


class ReleaseReport(msgspec.Struct, frozen=True):
    """``GET /v1/releases``. ``problems`` are of releases that do not serve, by id (``registry``: it can't be read)."""

    current: str | None
    previous: str | None
    answered: dict[str, int]  # answers by release, of those loaded
    usual_ms: dict[str, float]  # of the current one's graphs, when it was loaded
    problems: dict[str, str]


def load_row(row: ReleaseRow) -> Release:
    """Load a registered release with the configured public key. Raises BeforehandError."""
    return load(releases_dir() / row.path, load_public_key(public_key_path()), row.id)


class Releases:
    """Reads are lock-free; one thread (or a test) calls ``tick``."""

    def __init__(
        self,
        current: Callable[[], ReleaseRow | None] | None = None,
        loader: Callable[[ReleaseRow], Release] = load_row,
        clock: Clock = time.monotonic,
    ) -> None:
        self._current = current or _from_registry()
        self._loader = loader
        self._clock = clock
        self._used_at: dict[str, float] = {}
        self._answered: dict[str, int] = {}
        self._failed: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="releases", daemon=True)
        self.loaded = Loaded()

    def used(self, release: Release) -> None:
        """A request is answered by this release."""
        self._used_at[release.id] = self._clock()
        self._answered[release.id] = self._answered.get(release.id, 0) + 1

    def report(self) -> ReleaseReport:
        """What is loaded, and why what should be is not."""
        current, previous = self.loaded.current, self.loaded.previous
        return ReleaseReport(
            current=current.id if current else None,
            previous=previous.id if previous else None,
            answered={r.id: self._answered.get(r.id, 0) for r in (current, previous) if r},
            usual_ms={k: round(v * 1000, 3) for k, v in current.usual_s.items()} if current else {},
            problems=dict(self._problems),
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
        try:
            row = self._current()
            self._problems.pop("registry", None)
        except (BeforehandError, SQLAlchemyError) as error:
            self._complain("registry", str(error))
            return
        if row is not None and not self._serves(row.id) and self._due(row.id):
            self._switch(row)
        self._unload()

    def _follow(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.tick()

    def _serves(self, release_id: str) -> bool:
        return self.loaded.current is not None and self.loaded.current.id == release_id

    def _due(self, release_id: str) -> bool:
        failed_at = self._failed.get(release_id)
        return failed_at is None or self._clock() - failed_at >= RETRY_S

    def _switch(self, row: ReleaseRow) -> None:
        """Make ``row`` current. The old one becomes the previous, so a rollback within its time loads nothing."""
        try:
            release = self.loaded.of(row.id) or self._loader(row)
        except (BeforehandError, OSError) as error:
            self._failed[row.id] = self._clock()
            self._complain(row.id, str(error))
            return
        # A table of a million ids takes the garbage collector tens of milliseconds to walk, again and again. It holds
        # no cycle: its references free it when the release is unloaded.
        gc.freeze()
        if old := self.loaded.current:
            self._used_at[old.id] = self._clock()
        self.loaded = Loaded(release, old)
        self._problems = {k: v for k, v in self._problems.items() if k == "registry"}
        self._failed.clear()
        log.info("release %s serves, the previous is %s", release.id, old.id if old else "none")

    def _unload(self) -> None:
        old = self.loaded.previous
        if old is not None and self._clock() - self._used_at[old.id] > UNUSED_FOR_S:
            self.loaded = Loaded(self.loaded.current, None)
            self._answered.pop(old.id, None)
            log.info("release %s is unloaded: no state of it came for %.0f s", old.id, UNUSED_FOR_S)

    def _complain(self, what: str, problem: str) -> None:
        if self._problems.get(what) != problem:
            log.error("release %s does not serve: %s", what, problem)
        self._problems[what] = problem


def _from_registry() -> Callable[[], ReleaseRow | None]:
    registry: list[Registry] = []

    def current() -> ReleaseRow | None:
        if not registry:
            registry.append(Registry())  # later too: it may not be there yet when the service starts
        return registry[0].current()

    return current
