"""Kafka's errors as ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kafka.errors import KafkaError

from schemas.errors import StoreError

T = TypeVar("T")


def guarded(act: Callable[[], T]) -> T:
    """``act()``; raises ``StoreError`` when Kafka fails."""
    try:
        return act()
    except KafkaError as error:
        raise StoreError(
            f"Kafka failed: {error}", where="BEFOREHAND_KAFKA", mend="See `./beforehand status`."
        ) from None
