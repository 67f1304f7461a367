"""Connections to Redis, and its failures in this project's words."""

from __future__ import annotations

from typing import Any

import redis
from redis.exceptions import RedisError

from schemas.errors import StoreError

TIMEOUT_S = 5.0


def connect(url: str) -> Any:
    """A ``redis.Redis`` that returns bytes. It connects at its first use."""
    make: Any = redis.Redis
    return make.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)


def failure(error: RedisError) -> StoreError:
    """The error to raise for ``error``."""
    return StoreError(f"Redis failed: {error}", where="BEFOREHAND_REDIS", mend="See `./beforehand status`.")
