"""``POST /v1/events``: what users did, checked one by one and handed to the outbox.

An impression, and what follows from it, says in its context which ``rung`` and ``release`` made the list: so the share
of clicks and purchases by rung can be read from the metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from online.attribution import Attribution
from online.deadline import Deadline
from online.http import JSON, Answer, Receive, RefusedError, Scope, answer, answer_codec, body_codec, read_body
from online.outbox import Outbox
from schemas.errors import DataError
from schemas.event import Event, decode_event, encode_event

MAX_EVENTS = 500
_many = msgspec.json.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_EVENTS)])


class BadEvent(msgspec.Struct, frozen=True):
    """An event that was refused, by its place in the list."""

    place: int
    error: str
    mend: str


class EventsAnswer(msgspec.Struct, frozen=True):
    """What became of the events. ``no_room``: they were good but could not be kept: send them again."""

    accepted: int
    no_room: int
    refused: list[BadEvent]


class EventsRoute(Collector):
    """The handler, and its metrics."""

    def __init__(self, outbox: Outbox | None, releases: Callable[[], frozenset[str]], to: CollectorRegistry) -> None:
        self._outbox = outbox
        self._attribution = Attribution(releases)
        self._taken: Counter[tuple[str, str, str]] = Counter()
        self._refused = 0
        self._no_room = 0
        to.register(self)

    async def __call__(self, scope: Scope, receive: Receive, _deadline: Deadline) -> Answer:
        """202 when every good event was taken, 503 when some were not."""
        if self._outbox is None:
            mend = "Name the broker in $BEFOREHAND_KAFKA, install kafka-python, start anew."
            raise RefusedError(503, "this service takes no events", where="/v1/events", mend=mend)
        if body_codec(scope) != JSON:
            raise RefusedError(415, "events are JSON", where="content-type", mend="Send application/json.")
        body = await read_body(scope, receive)
        try:
            raws = _many.decode(body)
        except msgspec.ValidationError as error:
            mend = f"Send a JSON list of at most {MAX_EVENTS} events."
            raise RefusedError(422, str(error), where="body", mend=mend) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(400, f"not valid JSON: {error}", where="body", mend="Send a JSON list.") from None
        result = self._take_all(raws, self._outbox)
        return answer(result, answer_codec(scope), 503 if result.no_room else 202)

    def _take_all(self, raws: list[msgspec.Raw], outbox: Outbox) -> EventsAnswer:
        bad: list[BadEvent] = []
        accepted = no_room = 0
        for place, raw in enumerate(raws):
            try:
                event = decode_event(bytes(raw))
            except DataError as error:
                bad.append(BadEvent(place, error.problem, error.mend))
                continue
            if outbox.put(event.user_id.encode(), encode_event(event)):
                accepted += 1
                self._count(event)
            else:
                no_room += 1
        self._refused += len(bad)
        self._no_room += no_room
        return EventsAnswer(accepted, no_room, bad)

    def _count(self, event: Event) -> None:
        if self._attribution.new(event):
            self._taken[event.kind, *self._attribution.cause(event)] += 1

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        taken = CounterMetricFamily(
            "beforehand_events", "Events taken, by what led to them.", labels=["kind", "rung", "release"]
        )
        for labels, count in list(self._taken.items()):
            taken.add_metric(labels, count)
        yield taken
        yield CounterMetricFamily("beforehand_events_refused", "Events that break the contract.", value=self._refused)
        yield CounterMetricFamily("beforehand_events_no_room", "Good events that were not kept.", value=self._no_room)
        if self._outbox is not None:
            lost, waiting = self._outbox.num_lost, self._outbox.num_bytes
            yield CounterMetricFamily("beforehand_events_lost", "Events that Kafka did not take.", value=lost)
            yield GaugeMetricFamily("beforehand_events_waiting_bytes", "Events on their way to Kafka.", value=waiting)
