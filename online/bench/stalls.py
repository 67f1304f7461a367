"""How long the event loop stands still while a release is loaded, and while one is dropped, beside it."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from online.release import Release, load
from online.server import COLLECT_AFTER, SWITCH_S

TICK_S = 0.001
IDLE_S = 2.0


def load_stalls(folder: Path, key: Ed25519PublicKey) -> dict[str, float]:
    """The longest wait of a loop that wants to run every millisecond, ms: idle, while ``folder`` is loaded, dropped."""
    kept: list[Release] = []

    before_s, before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(COLLECT_AFTER)
    try:
        return {
            "idle_stall_ms": _longest_ms(lambda: time.sleep(IDLE_S)),
            "load_stall_ms": _longest_ms(lambda: kept.append(load(folder, key))),
            "unload_stall_ms": _longest_ms(kept.clear),
        }
    finally:
        sys.setswitchinterval(before_s)
        gc.set_threshold(*before)


def _longest_ms(work: Callable[[], object]) -> float:
    return asyncio.run(_tick(work)) * 1000


async def _tick(work: Callable[[], object]) -> float:
    """The longest wait, seconds, while ``work`` is done in a thread."""
    thread = Thread(target=work)
    longest_s, at = 0.0, time.monotonic()
    thread.start()
    while True:
        alive = thread.is_alive()
        await asyncio.sleep(TICK_S)
        now = time.monotonic()
        longest_s, at = max(longest_s, now - at - TICK_S), now
        if not alive:
            return longest_s
