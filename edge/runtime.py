"""``Edge``: what an app holds. Tracks local events, makes the prompt embedding in time, never raises into the app."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edge.bundle import Bundle
from edge.encoder import Encoder, OnnxEncoder, Worker
from edge.features import Feeds, features
from edge.names import EdgeReason
from edge.visit import Visit
from schemas.api import PromptEmbedding
from schemas.event import Event
from schemas.freshness import age_s
from schemas.release import UNKNOWN_BUCKET

MAX_LIMIT_S = 60.0


@dataclass(frozen=True)
class Clock:
    """The two clocks of a device: the wall's, which may jump, and one that only moves forward."""

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    monotonic_s: Callable[[], float] = time.monotonic


class Edge:
    """The runtime of one app. Its methods may be called from any thread; none raises, none outstays its time limit.

    Args:
        bundle: the release, or None when there is none (yet): events and prompts are then NOT_LOADED.
        consent: whether the user has agreed; without it nothing is kept and nothing is computed.
        clock: the device's clocks.
        load: makes the encoder from the graph's bytes, on a thread of its own, at the first prompt or ``warm``.
    """

    def __init__(
        self,
        bundle: Bundle | None,
        *,
        consent: bool = False,
        clock: Clock | None = None,
        load: Callable[[bytes], Encoder] = OnnxEncoder,
    ) -> None:
        self.events: Counter[EdgeReason] = Counter()
        """What became of every event given to ``track``."""
        self.prompts: Counter[EdgeReason] = Counter()
        """How every ``prompt`` ended; NO_EVENTS are those answered with the default rows."""
        self._bundle = bundle
        self._consent = consent
        self._clock = clock or Clock()
        self._load = load
        self._visit = Visit()
        self.new_process()
        _edges.add(self)

    def new_process(self) -> None:
        """Begin anew after a fork: threads don't survive it, and a lock may have been copied while it was held."""
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    def set_user(self, user_id: str, bucket: int | str = UNKNOWN_BUCKET) -> None:
        """Sign a user in, with the number or the name of a profile bucket.

        Another user's events and prompt are dropped; the same user keeps the events.
        """
        with self._lock:
            same = self._visit.user_id == user_id
            self._visit = replace(self._visit, bucket=bucket, made=None) if same else Visit(user_id, bucket)

    def forget(self) -> None:
        """Drop the user, the events and the prompt. Nothing is kept until ``set_user`` is called again."""
        with self._lock:
            self._visit = Visit()

    def set_consent(self, consent: bool) -> None:
        """Give or withdraw consent. Without it the events and the prompt are dropped and no more are kept."""
        with self._lock:
            self._consent = consent
            if not consent:
                self._visit = Visit(self._visit.user_id, self._visit.bucket)

    def track(self, event: Event) -> EdgeReason:
        """Keep a local event: OK, or why it was dropped. The newest E stay (``features.newest``)."""
        with self._lock:
            if not self._consent:
                reason = EdgeReason.NO_CONSENT
            elif self._bundle is None:
                reason = EdgeReason.NOT_LOADED
            else:
                reason = self._visit.judge(event, self._bundle)
                if reason is EdgeReason.OK:
                    self._visit = self._visit.joined_by(event, self._bundle.sizes.local_events)
            self.events[reason] += 1
        return reason

    def warm(self) -> None:
        """Begin to load the encoder in the background."""
        if self._bundle is not None and self._consent:
            with suppress(RuntimeError):  # no thread to be had: the next prompt will say NOT_LOADED
                self._loading(self._bundle)

    def prompt(self, time_limit_ms: float = 20.0) -> PromptEmbedding | EdgeReason:
        """The prompt embedding of the present events, or why there is none, within ``time_limit_ms``.

        Without events it is the default rows of the user's bucket. A result that comes late is not used.
        ``age_ms`` is the time since the events were read. The wait includes loading, which goes on in the background
        when the limit comes first; an encoder that did not load is not tried again before ``close``.
        """
        limit_s = min(time_limit_ms / 1000, MAX_LIMIT_S)
        begun_s = self._clock.monotonic_s()
        visit = self._visit
        rows, reason = self._rows(visit, begun_s + limit_s)
        took_s = self._clock.monotonic_s() - begun_s
        if rows is not None and not took_s <= limit_s:
            rows, reason = None, EdgeReason.TOO_LATE
        return self._keep(visit, rows, reason, took_s)

    def latest(self) -> PromptEmbedding | EdgeReason:
        """The last prompt embedding of this user, its age brought up to now; what a request carries."""
        visit, bundle = self._visit, self._bundle
        if visit.made is None:
            return EdgeReason.NOT_MADE
        age_ms = round((self._clock.monotonic_s() - visit.made_at_s) * 1000)
        if bundle is not None and age_ms > bundle.prompt_usable_for_s * 1000:
            return EdgeReason.TOO_OLD
        return PromptEmbedding(visit.made.release, visit.made.rows, visit.made.num_rows, max(0, age_ms))

    def close(self) -> None:
        """End the encoder's thread; a later prompt starts another."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _loading(self, bundle: Bundle) -> Worker:
        with self._lock:
            if self._worker is None:
                self._worker = Worker(lambda: self._load(bundle.graph))
            return self._worker

    def _rows(self, visit: Visit, deadline_s: float) -> tuple[NDArray | None, EdgeReason]:
        bundle, now_ms = self._bundle, self._clock.now_ms()
        if not self._consent:
            return None, EdgeReason.NO_CONSENT
        if bundle is None:
            return None, EdgeReason.NOT_LOADED
        if age_s(bundle.made_at_ms, now_ms) > bundle.usable_for_s:
            return None, EdgeReason.TOO_OLD
        bucket = bundle.known_bucket(visit.bucket)
        if not visit.events:
            return bundle.prompt_defaults[bucket], EdgeReason.NO_EVENTS
        inputs = features(visit.events, bundle.codes, bundle.sizes, bucket, now_ms)
        return self._encode(bundle, inputs.feeds, deadline_s)

    def _encode(self, bundle: Bundle, feeds: Feeds, deadline_s: float) -> tuple[NDArray | None, EdgeReason]:
        left_s = deadline_s - self._clock.monotonic_s()
        if not left_s > 0:
            return None, EdgeReason.TOO_LATE
        worker: Worker | None = None
        try:
            worker = self._loading(bundle)
            prompt = worker.run(feeds, left_s)
        except TimeoutError:
            return None, EdgeReason.TOO_LATE if worker and worker.loaded() else EdgeReason.NOT_LOADED
        except Exception:  # noqa: BLE001 - onnxruntime's errors share no other base, and none may reach the app
            return None, EdgeReason.ENCODE_FAILED if worker and worker.loaded() else EdgeReason.NOT_LOADED
        if prompt.shape != (1, bundle.sizes.prompt_rows, bundle.sizes.width):
            return None, EdgeReason.BAD_SHAPE
        return (prompt[0], EdgeReason.OK) if np.isfinite(prompt).all() else (None, EdgeReason.NOT_FINITE)

    def _keep(
        self, visit: Visit, rows: NDArray | None, reason: EdgeReason, took_s: float
    ) -> PromptEmbedding | EdgeReason:
        with self._lock:
            if rows is not None and self._visit.since is not visit.since:
                rows, reason = None, EdgeReason.USER_CHANGED if self._consent else EdgeReason.NO_CONSENT
            self.prompts[reason] += 1
            if rows is None or self._bundle is None:
                return reason
            raw = np.ascontiguousarray(rows, "<f4").tobytes()
            made = PromptEmbedding(self._bundle.release, raw, len(rows), max(0, round(took_s * 1000)))
            made_at_s = self._clock.monotonic_s() - took_s
            self._visit = replace(self._visit, made=made, made_at_s=made_at_s)
            return made


_edges: weakref.WeakSet[Edge] = weakref.WeakSet()


def _after_fork() -> None:
    for edge in list(_edges):
        edge.new_process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
