"""What a request can't cost less than: its matrix products at the speed of this core, and a bare MGET."""

from __future__ import annotations

import asyncio
import math
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import hiredis
import msgspec
import numpy as np
import onnxruntime as ort  # pyright: ignore[reportMissingTypeStubs]

from online.deadline import Deadline
from online.graph import Array
from online.release import Release
from online.store import Store
from schemas.graphs import DECODER, decoder_arrays
from schemas.keys import candidates_key, state_key

PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
RUNS = 300
_ort: Any = ort
_pack = cast("Callable[[tuple[bytes | str, ...]], bytes]", hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


def floor_cpu_ms(release: Release, feed: Mapping[str, Array]) -> float:
    """The time of the decoder's matrix products if they ran like one large product on one core."""
    return products_flops(release, feed) / gflops() / 1e6


def products_flops(release: Release, feed: Mapping[str, Array]) -> float:
    """Floating-point operations of the decoder's matrix products, from onnxruntime's own profile of a run."""
    with tempfile.TemporaryDirectory() as folder:
        options = _ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "run")
        session = _ort.InferenceSession(str(release.folder / DECODER), options, providers=["CPUExecutionProvider"])
        names = decoder_arrays(release.model.levels)
        bound = {name: release.arrays[name] for name in names if name in release.arrays}
        session.run(None, {**bound, **feed, "weights": np.asarray(release.model.weights, np.float32)})
        events: list[dict[str, Any]] = msgspec.json.decode(Path(session.end_profiling()).read_bytes())
    return sum(_flops(event["args"]) for event in events if event.get("args", {}).get("op_name") in PRODUCTS)


def _flops(arguments: dict[str, Any]) -> float:
    first, *_ = arguments["input_type_shape"][0].values()
    made, *_ = arguments["output_type_shape"][0].values()
    return 2.0 * math.prod(made) * first[-1]


def gflops(size: int = 768) -> float:
    """What a large float32 product reaches on one core."""
    a = np.ones((size, size), np.float32)
    best = float("inf")
    for _ in range(5):
        begun = time.process_time()
        _ = a @ a
        best = min(best, time.process_time() - begun)  # all threads' time: per core, whatever numpy uses
    return 2 * size**3 / best / 1e9


def lookup_cpu_us(redis_url: str, users: list[str]) -> float:
    """CPU of this process for one look-up as the service does it, cache and all, each user once."""

    async def look() -> float:
        store = Store(redis_url, timeout_s=5.0, cache_bytes=0)
        for user_id in users[:RUNS]:
            await store.find(user_id, Deadline(5.0))
        begun = time.process_time()
        for user_id in users:
            await store.find(user_id, Deadline(5.0))
        took = time.process_time() - begun
        await store.close()
        return took

    return asyncio.run(look()) / len(users) * 1e6


def mget_cpu_us(redis_url: str, users: list[str]) -> float:
    """CPU of this process for the same MGET over a bare blocking socket."""
    parts = urlsplit(redis_url)
    reader = hiredis.Reader(notEnoughData=None)
    with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379)) as link:
        begun = time.process_time()
        for user_id in users:
            link.sendall(_pack(("MGET", state_key(user_id), candidates_key(user_id))))
            while True:
                reader.feed(link.recv(65536))
                if reader.gets() is not None:
                    break
        return (time.process_time() - begun) / len(users) * 1e6
