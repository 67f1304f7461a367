"""An ONNX graph whose large inputs are bound once: a request hands over only its own small arrays."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort  # pyright: ignore[reportMissingTypeStubs]

from schemas.errors import ReleaseError

Array = np.ndarray[Any, np.dtype[Any]]
_ort: Any = ort  # it is typed in parts only
_ort_state: Any = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")


def _ort_errors() -> tuple[type[Exception], ...]:
    """onnxruntime raises a dozen exceptions that share no base class of their own."""
    names: list[Any] = [getattr(_ort_state, name) for name in dir(_ort_state)]
    own: list[type[Exception]] = [kind for kind in names if isinstance(kind, type) and issubclass(kind, Exception)]
    return (*own, RuntimeError, ValueError)


ORT_ERRORS = _ort_errors()


class Stop:
    """Ends a run from another thread, also one that has not begun yet."""

    def __init__(self) -> None:
        self.options: Any = _ort.RunOptions()
        # "No run is captured", which is so anyway: where nothing is said onnxruntime finds that out by an exception of
        # 25 µs, in every run.
        self.options.add_run_config_entry("gpu_graph_id", "-1")
        self.called = False

    def __call__(self) -> None:
        """onnxruntime looks at this between two operators."""
        self.called = True
        self.options.terminate = True


class Graph:
    """A session of one thread. Safe to run from several threads at once.

    Args:
        path: the ONNX file.
        arrays: inputs that stay the same for every run; they are referred to, not copied.
        provider: onnxruntime's name of what runs it.
        device: where that keeps arrays; elsewhere than on the ``cpu`` the arrays are copied there, once.

    Raises:
        ReleaseError: the file is not a graph, or an array is not an input of it.
    """

    faults = 0  # one session takes over from nobody

    def __init__(
        self, path: Path, arrays: Mapping[str, Array], provider: str = "CPUExecutionProvider", device: str = "cpu"
    ) -> None:
        options: Any = _ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4  # a terminated run is not news
        try:
            self._session: Any = _ort.InferenceSession(os.fspath(path), options, providers=[provider])
        except ORT_ERRORS as error:
            raise ReleaseError(f"not a graph that onnxruntime can run: {error}", where=str(path)) from None
        self.inputs: frozenset[str] = frozenset(i.name for i in self._session.get_inputs())
        self._outputs: list[str] = [o.name for o in self._session.get_outputs()]
        self._where = os.fspath(path)
        self._device = device
        self._bind(arrays)

    def _bind(self, arrays: Mapping[str, Array]) -> None:
        if unknown := set(arrays) - self.inputs:
            raise ReleaseError("the graph does not take these arrays", where=self._where, value=sorted(unknown))
        self._bound: dict[str, Any] = {name: _value(array, self._device) for name, array in arrays.items()}
        self._asked = self.inputs - set(arrays)
        self._own = threading.local()

    def with_arrays(self, arrays: Mapping[str, Array]) -> Graph:
        """The same session over other arrays: for a release whose graph has the same bytes. This one is not changed."""
        twin = copy(self)
        twin._bind(arrays)
        return twin

    def run(self, feed: Mapping[str, Array], stop: Stop | None = None) -> list[Array]:
        """The outputs, in the graph's order. Raises one of ``ORT_ERRORS``, also when it was stopped."""
        if wrong := self._asked ^ feed.keys():  # what is not given would be the thread's last one: another user's
            raise ValueError(f"inputs {sorted(wrong)} are missing or too many")
        binding = self._binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name in self._outputs:  # anew: else the next run would write into this one's
            binding.bind_output(name)
        if self._device != "cpu":  # they are copied there on a stream of their own
            binding.synchronize_inputs()
        self._session.run_with_iobinding(binding, stop.options if stop else None)
        return binding.copy_outputs_to_cpu()

    def _binding(self) -> Any:
        """This thread's: what is bound stays so between its runs."""
        if not hasattr(self._own, "binding"):
            binding = self._session.io_binding()
            for name, value in self._bound.items():
                binding.bind_ortvalue_input(name, value)
            self._own.binding = binding
        return self._own.binding


def _value(array: Array, device: str) -> Any:
    return _ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), device)
