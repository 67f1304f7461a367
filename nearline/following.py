"""Which release to encode with: the registry's current one, loaded beside the one in use."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from nearline.candidates import ListMaker
from nearline.release import RUNTIME_ERRORS, Release, load_release, release_folder
from nearline.states import Reading, Record, StateMaker
from schemas.cli import say
from schemas.errors import BeforehandError, ReleaseError
from schemas.event import MIN_AT_MS
from schemas.names import Kind
from schemas.registry import Registry
from schemas.window import Window, WindowEvent

CHECK_EVERY_S = 3.0


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
    """Loads the release to start with, and later ones in a thread of its own, so that encoding goes on meanwhile.

    A release that does not load is reported once, and the one in use stays.
    """

    def __init__(self, registry: Registry, pinned: str | None = None) -> None:
        """``pinned``: always this release, whatever is promoted."""
        self._registry = registry
        self._pinned = pinned
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="release")
        self._loading: tuple[str, Future[Release]] | None = None
        self._refused: str | None = None
        self._checked_at = 0.0
        self._said_down = False

    def first(self) -> Release:
        """The release to start with.

        Raises:
            ReleaseError: there is none, or it does not load.
        """
        row = self._registry.get(self._pinned) if self._pinned else self._registry.current()
        if row is None:
            raise ReleaseError(
                "no release is current", mend="Make one with `./beforehand build`, or promote one by its id."
            )
        return open_release(release_folder(row))

    def newer(self, in_use: str) -> Release | None:
        """Another release, once it is current and loaded; None while there is nothing to change."""
        if self._pinned:
            return None
        if self._loading is not None:
            return self._loaded()
        if time.monotonic() - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = time.monotonic()
            self._look(in_use)
        return None

    def close(self) -> None:
        """Wait for no load any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _look(self, in_use: str) -> None:
        try:
            row = self._registry.current()
        except (SQLAlchemyError, BeforehandError) as error:
            if not self._said_down:
                say(f"the registry does not answer, the release in use stays: {error}")
            self._said_down = True
            return
        self._said_down = False
        if row is not None and row.id not in (in_use, self._refused):
            self._loading = (row.id, self._pool.submit(open_release, release_folder(row)))

    def _loaded(self) -> Release | None:
        assert self._loading is not None
        release_id, future = self._loading
        if not future.done():
            return None
        self._loading = None
        try:
            return future.result()
        except ReleaseError as error:
            self._refused = release_id
            say(f"release {release_id} is not used: {error}")
            return None
