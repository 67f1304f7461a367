"""The prompt encoder's session and the one thread it runs on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from numpy.typing import NDArray

from edge.features import Feeds


class RunSwitch(Protocol):
    """``onnxruntime.RunOptions``: setting ``terminate`` stops the run it belongs to."""

    terminate: bool


class Encoder(Protocol):
    """Runs the prompt encoder; lives on one thread."""

    def switch(self) -> RunSwitch:
        """A switch for one run."""
        ...

    def run(self, feeds: Feeds, switch: RunSwitch) -> NDArray:
        """The prompt rows [1, P, d]. Raises when it fails or was switched off."""
        ...


class OnnxEncoder:
    """An onnxruntime session on the CPU: one intra-op thread, no spinning, silent."""

    def __init__(self, graph: bytes) -> None:
        # Imported where it is needed: it takes longer than everything else here, and the app must not wait for it.
        import onnxruntime as ort  # noqa: PLC0415

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._new_options: Callable[[], Any] = ort.RunOptions
        self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def switch(self) -> RunSwitch:
        """Run options, silent too: a stopped run is no error."""
        options = self._new_options()
        options.log_severity_level = 4
        return options

    def run(self, feeds: Feeds, switch: RunSwitch) -> NDArray:
        """One run of the graph; the lock of the interpreter is free meanwhile."""
        return self._session.run(["prompt"], feeds, switch)[0]  # type: ignore[return-value]


class StoppedError(Exception):
    """The run was stopped before it began."""


class Attempt:
    """One run that another thread may stop."""

    def __init__(self, encoder: Future[Encoder], feeds: Feeds) -> None:
        self._encoder = encoder
        self._feeds = feeds
        self._switch: RunSwitch | None = None
        self._stopped = False

    def __call__(self) -> NDArray:
        """Run; on the worker's thread, after the encoder has loaded."""
        encoder = self._encoder.result()
        # The switch is made visible before the flag is read, and ``stop`` sets the flag before it reads the switch:
        # one of the two sees the other, whichever comes first.
        self._switch = encoder.switch()
        if self._stopped:
            raise StoppedError
        return encoder.run(self._feeds, self._switch)

    def stop(self) -> None:
        """Stop the run, or keep it from beginning."""
        self._stopped = True
        if self._switch is not None:
            self._switch.terminate = True


class Worker:
    """One thread that loads the encoder once and then runs attempts in turn."""

    def __init__(self, load: Callable[[], Encoder]) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edge-encoder")
        self.encoder: Future[Encoder] = self._pool.submit(load)

    def loaded(self) -> bool:
        """True once the encoder can run."""
        return self.encoder.done() and not self.encoder.cancelled() and self.encoder.exception() is None

    def run(self, feeds: Feeds, limit_s: float) -> NDArray:
        """The output, waited for at most ``limit_s``, loading included.

        Raises:
            TimeoutError: the limit came first; the run has been told to stop.
            Exception: whatever the load or the run raised.
        """
        attempt = Attempt(self.encoder, feeds)
        future = self._pool.submit(attempt)
        try:
            return future.result(timeout=limit_s)
        except TimeoutError:
            attempt.stop()
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread when its present work is done; waits for nothing."""
        self._pool.shutdown(wait=False, cancel_futures=True)
