"""Nothing outlives a test of the chain, also one that fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from waiting import running


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    for process in running:
        if process.poll() is None:
            process.kill()
            process.communicate()
    running.clear()
