"""A process that is really gone when a test goes on."""

import os
import signal
import time

from infra import proc


def kill(pid: int) -> None:
    """Kill -9, and wait: one that still dies counts as running."""
    os.kill(pid, signal.SIGKILL)
    while proc.started(pid) is not None:
        time.sleep(0.02)
