"""Who is signed in and what they did on this device: an immutable value, replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from edge.bundle import Bundle
from edge.features import newest
from edge.names import EdgeReason
from schemas.api import PromptEmbedding
from schemas.event import MAX_AT_MS, MIN_AT_MS, Event
from schemas.names import Kind
from schemas.release import UNKNOWN_BUCKET


@dataclass(frozen=True)
class Visit:
    """One user's local events, and the prompt made from them.

    ``made_at_s`` is the monotonic second at which the events of ``made`` were read. ``since`` is the visit's
    identity: it lasts until another user signs in, this one is forgotten, or consent is withdrawn.
    """

    user_id: str | None = None
    bucket: int | str = UNKNOWN_BUCKET
    events: tuple[Event, ...] = ()
    made: PromptEmbedding | None = None
    made_at_s: float = 0.0
    since: object = field(default_factory=object)

    def judge(self, event: Event, bundle: Bundle) -> EdgeReason:
        """Whether ``event`` may join: OK, or why not."""
        if not _well_formed(event):
            return EdgeReason.BAD_EVENT
        if self.user_id is None:
            return EdgeReason.NO_USER
        if event.user_id != self.user_id:
            return EdgeReason.OTHER_USER
        return EdgeReason.OK if bundle.codes(event.item_id) is not None else EdgeReason.UNKNOWN_ITEM

    def joined_by(self, event: Event, limit: int) -> Visit:
        """The visit with ``event``, and at most ``limit`` events, the newest."""
        return replace(self, events=tuple(newest((*self.events, event), limit)))


def _well_formed(event: object) -> bool:
    # A struct made by hand is not checked by msgspec.
    return (
        isinstance(event, Event)
        and isinstance(event.event_id, str)
        and isinstance(event.user_id, str)
        and isinstance(event.item_id, str)
        and isinstance(event.kind, Kind)
        and isinstance(event.at, int)
        and MIN_AT_MS <= event.at <= MAX_AT_MS
    )
