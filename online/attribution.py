"""Which rung and release led to an event: what it says itself, else the impression of the same item before it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from schemas.event import Event
from schemas.names import Kind, Rung

OTHER = "other"
"""The rung or release of an event that names none, or none that is known here."""
RUNGS = frozenset(str(rung) for rung in Rung)
MAX_IMPRESSIONS = 200_000
MAX_EVENTS = 100_000
WINDOW_MS = 24 * 3_600_000
"""A click or purchase this long after the impression is still its doing."""
Cause = tuple[str, str]  # rung, release
UNKNOWN: Cause = (OTHER, OTHER)


class Attribution:
    """Bounded, of one process: users come to the same one (affinity). It keeps hashes, no ids."""

    def __init__(self, releases: Callable[[], frozenset[str]], max_impressions: int = MAX_IMPRESSIONS) -> None:
        self._releases = releases
        self._max = max_impressions
        self._shown: OrderedDict[int, tuple[int, Cause]] = OrderedDict()
        self._seen: OrderedDict[int, None] = OrderedDict()

    def new(self, event: Event) -> bool:
        """Whether its id was not counted before: events are sent again when an answer was lost."""
        key = hash(event.event_id)
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > MAX_EVENTS:
            self._seen.popitem(last=False)
        return True

    def cause(self, event: Event) -> Cause:
        """The rung and the release, each ``OTHER`` when unknown. Impressions are remembered."""
        named = self._named(event)
        key = hash((event.user_id, event.item_id))
        if event.kind is Kind.IMPRESSION:
            if named != UNKNOWN:
                self._shown[key] = (event.at, named)
                self._shown.move_to_end(key)
                if len(self._shown) > self._max:
                    self._shown.popitem(last=False)
        elif named == UNKNOWN and (shown := self._shown.get(key)) and 0 <= event.at - shown[0] <= WINDOW_MS:
            return shown[1]
        return named

    def _named(self, event: Event) -> Cause:
        """Labels come from closed sets, whatever the context says."""
        rung, release = event.context.get("rung", OTHER), event.context.get("release", OTHER)
        return rung if rung in RUNGS else OTHER, release if release in self._releases() else OTHER
