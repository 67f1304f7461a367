"""Which releases to encode with: the registry's current one and its canary, loaded beside those in use."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from nearline.candidates import ListMaker
from nearline.release import RUNTIME_ERRORS, Release, load_release, release_folder
from nearline.serving import Serving
from nearline.states import Reading, Record, StateMaker
from schemas.cli import say
from schemas.errors import BeforehandError, ReleaseError
from schemas.event import MIN_AT_MS
from schemas.names import Kind
from schemas.registry import Registry
from schemas.registry.releases import Pointer
from schemas.window import Window, WindowEvent

CHECK_EVERY_S = 3.0
RETRY_S = 60.0
"""A release that did not load is tried again after so long."""


def open_release(folder: Path) -> Release:
    """Load a release and run both graphs once: what fails must fail before it is used, and the first run is slow.

    Raises:
        ReleaseError: see ``load_release``; or a graph does not run, or gives numbers that are not finite.
    """
    release = load_release(folder)
    item_id = next(reversed(list(release.item_number)))
    window = Window([WindowEvent("trial", item_id, Kind.CLICK, MIN_AT_MS)])
    try:
        made = StateMaker(release).make([Reading(Record(0, 0, b"trial", b""), "trial", window)])
        ListMaker(release).make([state for state, _ in made.states])
    except RUNTIME_ERRORS as error:
        raise ReleaseError(f"a graph does not run: {error}", where=str(folder), mend="Build it again.") from None
    if made.refused:
        raise ReleaseError("the encoder gives numbers that are not finite", where=str(folder), mend="Build it again.")
    return release


class ReleaseFollower:
    """Loads the releases to start with, and later ones in a thread of its own, so that encoding goes on meanwhile.

    A release that does not load is reported once and used by nobody: the current one in use stays, and a canary's users
    are encoded by the current one.
    """

    def __init__(self, registry: Registry, pinned: str | None = None) -> None:
        """``pinned``: always this release, whatever is promoted or tried."""
        self._registry = registry
        self._pinned = pinned
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="release")
        self._loading: tuple[str, Future[Release]] | None = None
        self._loaded: dict[str, Release] = {}
        self._refused_at: dict[str, float] = {}
        self._wanted: Pointer | None = None
        self._checked_at = 0.0
        self._said_down = False

    def first(self) -> Serving:
        """What to start with; without the canary when that does not load.

        Raises:
            ReleaseError: there is no release, or it does not load.
        """
        pointer = Pointer(current=self._pinned) if self._pinned else self._registry.pointer()
        if pointer.current is None:
            raise ReleaseError(
                "no release is current", mend="Make one with `./beforehand build`, or promote one by its id."
            )
        current = self._open(pointer.current)
        if pointer.canary is None:
            return Serving(current)
        try:
            return Serving(current, self._open(pointer.canary), pointer.canary_share)
        except ReleaseError as error:
            self._refuse(pointer.canary, error)
            return Serving(current)

    def newer(self, in_use: Serving) -> Serving | None:
        """What the registry's pointer says, once it is loaded; None while there is nothing to change."""
        if self._pinned:
            return None
        if self._loading is not None:
            self._collect()
        elif time.monotonic() - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = time.monotonic()
            self._look()
        if self._wanted is None or self._loading is not None:
            return None
        return self._change(in_use, self._wanted)

    def close(self) -> None:
        """Wait for no load any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _change(self, in_use: Serving, wanted: Pointer) -> Serving | None:
        loaded = self._loaded | in_use.releases
        missing = [name for name in (wanted.current, wanted.canary) if name and name not in loaded and self._due(name)]
        if missing:
            self._loading = (missing[0], self._pool.submit(self._open, missing[0]))
            return None
        current = loaded.get(wanted.current or "", in_use.current)
        canary = loaded.get(wanted.canary or "")
        if canary is current:
            canary = None
        serving = Serving(current, canary, wanted.canary_share if canary else 0.0)
        self._loaded.clear()  # what is in use is kept there
        return serving if serving.split != in_use.split else None

    def _open(self, release_id: str) -> Release:
        return open_release(release_folder(self._registry.get(release_id)))

    def _look(self) -> None:
        try:
            self._wanted = self._registry.pointer()
        except (SQLAlchemyError, BeforehandError) as error:
            if not self._said_down:
                say(f"the registry does not answer, the releases in use stay: {error}")
            self._said_down = True
        else:
            self._said_down = False

    def _collect(self) -> None:
        assert self._loading is not None
        release_id, future = self._loading
        if not future.done():
            return
        self._loading = None
        try:
            self._loaded[release_id] = future.result()
            self._refused_at.pop(release_id, None)
        except (SQLAlchemyError, BeforehandError) as error:
            self._refuse(release_id, error)

    def _due(self, release_id: str) -> bool:
        refused_at = self._refused_at.get(release_id)
        return refused_at is None or time.monotonic() - refused_at >= RETRY_S

    def _refuse(self, release_id: str, error: Exception) -> None:
        if release_id not in self._refused_at:
            say(f"release {release_id} is not used: {error}")
        self._refused_at[release_id] = time.monotonic()
