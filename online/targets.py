"""The files that ``ask`` measures with, and the arithmetic on what came back."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from schemas.api import PromptEmbedding, RecallResponse
from schemas.errors import DataError
from schemas.event import Event
from schemas.names import State

T = TypeVar("T")


class Target(msgspec.Struct, frozen=True):
    """What a user went on to take. ``local_events`` are those that only the device knew."""

    user_id: str
    items: list[str]
    at: int = 0
    local_events: list[Event] = []


class PromptLine(msgspec.Struct, frozen=True):
    """One line of ``beforehand edge prompts``."""

    user_id: str
    prompt: PromptEmbedding


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question and what became of it; ``response`` is None when ``error`` says why."""

    target: Target
    latency_ms: float
    response: RecallResponse | None
    error: str = ""

    def recall(self, k: int) -> float:
        """The share of the user's items among the first ``k``; nothing came: 0."""
        if self.response is None:
            return 0.0
        wanted = set(self.target.items)
        return len(wanted & {item.item_id for item in self.response.items[:k]}) / len(wanted)

    @property
    def state(self) -> str:
        """Of the intent state."""
        return str(self.response.assets["intent_state"].state) if self.response else "NO_ANSWER"


def read_lines(path: Path, kind: type[T], limit: int | None = None) -> list[T]:
    """The file's JSON lines. Raises DataError with file and line."""
    decoder = msgspec.json.Decoder(kind)
    values: list[T] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if limit is not None and len(values) >= limit:
                    break
                try:
                    values.append(decoder.decode(line))
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise DataError(str(error), where=f"{path}:{number}", value=line[:80]) from None
    except OSError as error:
        raise DataError(f"can't be read: {error.strerror}", where=str(path)) from None
    return values


def recalls(outcomes: Sequence[Outcome]) -> dict[str, float | int]:
    """Mean share of hits over all users, those without a state or an answer included."""
    return {
        "recall_at_10": _mean(outcome.recall(10) for outcome in outcomes),
        "recall_at_50": _mean(outcome.recall(50) for outcome in outcomes),
        "users": len(outcomes),
    }


def summary(
    outcomes: Sequence[Outcome], slack_ms: float, catalogue: Callable[[str], frozenset[str] | None]
) -> dict[str, Any]:
    """The measured part of the result of ``ask --targets``; keys as its --help says."""
    answers = [(o, o.response) for o in outcomes if o.response is not None]
    latencies = sorted(o.latency_ms for o in outcomes)
    typical = min(answers, key=lambda a: abs(a[0].latency_ms - _quantile(latencies, 0.5)), default=None)
    return {
        **recalls(outcomes),
        "latency_ms": {
            "p50": _quantile(latencies, 0.5),
            "p99": _quantile(latencies, 0.99),
            "max": _quantile(latencies, 1),
        },
        "rungs": Counter(str(r.rung) for _, r in answers),
        "rungs_with_state": Counter(str(r.rung) for o, r in answers if o.state in (State.FRESH, State.STALE)),
        "states": Counter(o.state for o in outcomes),
        "releases": Counter(r.release for _, r in answers),
        "unknown_items": _unknown(answers, catalogue),
        "late": sum(o.latency_ms > r.ledger.budget_ms + slack_ms for o, r in answers),
        "errors": Counter(o.error for o in outcomes if o.error),
        "ledger_ms": _ledger([r for _, r in answers]),
        "example": msgspec.to_builtins(typical[1]) if typical else None,
    }


def _unknown(
    answers: Iterable[tuple[Outcome, RecallResponse]], catalogue: Callable[[str], frozenset[str] | None]
) -> int | None:
    count = 0
    for _, response in answers:
        if response.items:
            known = catalogue(response.release)
            if known is None:
                return None
            count += sum(item.item_id not in known for item in response.items)
    return count


def _ledger(responses: Sequence[RecallResponse]) -> dict[str, Any]:
    return {
        "total": _median([r.ledger.total_ms for r in responses]),
        "stages": _medians([r.ledger.stages_ms for r in responses]),
        "saved": _medians([r.ledger.saved_ms for r in responses]),
    }


def _medians(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _median([part[name] for part in parts if name in part]) for name in names}


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0


def _quantile(ordered: Sequence[float], q: float) -> float:
    """The smallest value that at least the share ``q`` does not exceed."""
    if not ordered:
        return 0.0
    return ordered[max(0, -(-int(q * 1000) * len(ordered) // 1000) - 1)]
