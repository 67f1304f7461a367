"""A decoder's sessions: on the processor, and on an accelerator where there is one.

A run goes to the session that would be done with it first, by what each has to do and what it usually takes. When the
accelerator fails, the processor does the same run at once and all that follow; after ``RETRY_S`` it is tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import onnxruntime as ort  # pyright: ignore[reportMissingTypeStubs]

from online.deadline import Clock
from online.graph import ORT_ERRORS, Array, Graph, Stop
from online.ladder import Usual
from schemas.errors import ReleaseError

ACCELERATORS = {"CUDAExecutionProvider": "cuda", "ROCMExecutionProvider": "cuda"}
"""Providers that are tried, best first, and where they keep arrays."""
RETRY_S = 30.0
STOPPED = 5
"""Runs in a row that had to be stopped: it hangs, though it reports no fault."""
log = logging.getLogger(__name__)


class Runner(Protocol):
    """What is needed of a decoder."""

    def run(self, feed: Mapping[str, Array], stop: Stop | None = None) -> list[Array]:
        """The outputs, in the graph's order. Raises one of ``ORT_ERRORS``, also when it was stopped."""
        ...

    def with_arrays(self, arrays: Mapping[str, Array]) -> Runner:
        """The same sessions over other arrays. This one is not changed."""
        ...

    @property
    def faults(self) -> int:
        """How often another session had to take over: what was learnt of its speed no longer holds."""
        ...


def open_decoder(path: Path, arrays: Mapping[str, Array]) -> Runner:
    """The sessions that this machine has for a decoder. Raises ReleaseError when the processor can't run it."""
    graph = Graph(path, arrays)
    module: Any = ort  # it is typed in parts only
    for name, device in ACCELERATORS.items():
        if name not in module.get_available_providers():
            continue
        try:
            return Sessions(graph, Graph(path, arrays, name, device))
        except (ReleaseError, *ORT_ERRORS) as error:
            log.warning("%s can't be used, the processor decodes: %s", name, error)
    return graph


class Sessions:
    """Thread-safe, as a session is."""

    def __init__(self, graph: Runner, accelerator: Runner, clock: Clock = time.monotonic) -> None:
        self._graph, self._accelerator = graph, accelerator
        self._clock = clock
        self._lock = threading.Lock()
        self._busy = {graph: 0, accelerator: 0}
        self._usual = {graph: Usual(), accelerator: Usual()}
        self._left_until = float("-inf")
        self._stopped = 0
        self.faults = 0

    def with_arrays(self, arrays: Mapping[str, Array]) -> Sessions:
        """The same sessions over other arrays; both learn anew."""
        return Sessions(self._graph.with_arrays(arrays), self._accelerator.with_arrays(arrays), self._clock)

    def run(self, feed: Mapping[str, Array], stop: Stop | None = None) -> list[Array]:
        """As ``Runner.run``. It fails only when the processor does."""
        session = self._choose()
        if session is self._graph:
            return self._timed(session, feed, stop)
        try:
            outputs = self._timed(session, feed, stop)
        except ORT_ERRORS as error:
            stopped = stop is not None and stop.called
            self._failed(error, stopped=stopped)
            if stopped:
                raise
            with self._lock:
                self._busy[self._graph] += 1
            return self._timed(self._graph, feed, stop)
        self._stopped = 0
        return outputs

    def _choose(self) -> Runner:
        """Who would be done first; the accelerator when that is equal, as before anything is known."""
        with self._lock:
            ready = self._clock() >= self._left_until
            chosen = min(
                (self._accelerator, self._graph) if ready else (self._graph,),
                key=lambda session: (self._busy[session] + 1) * self._usual[session].s,
            )
            self._busy[chosen] += 1
            return chosen

    def _timed(self, session: Runner, feed: Mapping[str, Array], stop: Stop | None) -> list[Array]:
        begun = self._clock()
        try:
            outputs = session.run(feed, stop)
        finally:
            with self._lock:
                self._busy[session] -= 1
        usual = self._usual[session]
        usual.s = usual.s or self._clock() - begun
        usual.took(self._clock() - begun)
        return outputs

    def _failed(self, error: Exception, *, stopped: bool) -> None:
        with self._lock:
            self._stopped = self._stopped + 1 if stopped else 0
            if stopped and self._stopped < STOPPED:
                return
            self._left_until = self._clock() + RETRY_S
            self._usual[self._accelerator] = Usual()  # it may come back another one
            self.faults += 1
        what = str(error).partition("\n")[0]  # of names and shapes, not of values
        log.error("the accelerator failed, the processor takes over for %.0f s: %s", RETRY_S, what)
