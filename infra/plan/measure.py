"""What ``plan advise`` looks at: the service's counters and usual times, and the users' windows in Redis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

import msgspec
import redis
from prometheus_client.parser import text_string_to_metric_families

from infra.plan.advise import DAY_S, Costs, User
from schemas.errors import DataError, StoreError
from schemas.keys import PREFIX, candidates_key
from schemas.state import IntentState, decode_state

T = TypeVar("T")
WAIT_S = 5.0
AT_ONCE = 500
ITEM_BYTES = 14
"""Of one item with its score in a stored list: about, where no list is stored yet."""
FLAT_RUNGS = ("nearline", "cohort", "popular")


class Counters(msgspec.Struct, frozen=True):
    """Of one service since it started."""

    answers: dict[str, float]  # by rung
    answer_s: float
    decode_s: float  # waiting for the decoder included

    @property
    def total(self) -> float:
        """Answers."""
        return sum(self.answers.values())

    def since(self, old: Counters) -> Counters:
        """What came after ``old``; everything when the service has started again meanwhile."""
        if old.total > self.total:
            return self
        answers = {rung: count - old.answers.get(rung, 0.0) for rung, count in self.answers.items()}
        return Counters(answers, self.answer_s - old.answer_s, self.decode_s - old.decode_s)

    def figures(self) -> dict[str, float]:
        """``live_ms`` and the share of each rung; empty without answers."""
        if not self.total:
            return {}
        shares = {rung: round(count / self.total, 4) for rung, count in self.answers.items()}
        return {"live_ms": round(self.answer_s / self.total * 1000, 3), **shares}


def read_counters(text: str) -> Counters:
    """From the service's ``/metrics``."""
    answers: dict[str, float] = {}
    answer_s = decode_s = 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "beforehand_answers_total":
                rung = sample.labels["rung"]
                answers[rung] = answers.get(rung, 0.0) + sample.value
            elif sample.name == "beforehand_answer_seconds_sum":
                answer_s += sample.value
            elif sample.name == "beforehand_stage_seconds_sum" and sample.labels["stage"] in ("decode", "queue"):
                decode_s += sample.value
    return Counters(answers, answer_s, decode_s)


def ask(url: str, path: str) -> bytes:
    """Raises StoreError when the service does not answer."""
    try:
        with urlopen(f"{url.rstrip('/')}{path}", timeout=WAIT_S) as answer:  # noqa: S310 - the operator's own
            return answer.read()
    except (URLError, OSError, ValueError) as error:
        mend = "Start it with `./beforehand serve`, or name it with --url."
        raise StoreError(f"the service does not answer: {error}", where=url, mend=mend) from None


def costs(counters: Counters, usual_ms: Mapping[str, float], state_bytes: int, list_bytes: int) -> Costs:
    """Live times from the counters: what is not decoding is the same for every rung.

    Raises:
        DataError: nothing was asked of the service yet.
    """
    if not counters.total:
        raise DataError("no answer was given yet", where="/metrics", mend="Let it serve for a day, then ask again.")
    generated = counters.answers.get("generate", 0.0)
    base_ms = max(0.0, counters.answer_s - counters.decode_s) / counters.total * 1000
    decode_ms = counters.decode_s / generated * 1000 if generated else usual_ms.get("decode", 0.0)
    return Costs(
        encode_ms=usual_ms.get("intent_state", 0.0),
        list_ms=usual_ms.get("decode", 0.0),
        list_bytes=list_bytes,
        state_bytes=state_bytes,
        live_ms={"generate": base_ms + decode_ms, **dict.fromkeys(FLAT_RUNGS, base_ms)},
        fallback=1 - generated / counters.total,
    )


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """``items`` by ``size`` at a time (``itertools.batched`` of Python 3.12)."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


class Seen(msgspec.Struct, frozen=True):
    """The users of the last day that has events, and what a stored value takes (means)."""

    day: list[User]
    state_bytes: int
    list_bytes: int
    num_lists: int
    cut: bool  # there are more users than were looked at


def look(link: redis.Redis, limit: int, k_max: int) -> Seen:
    """Read up to ``limit`` users' windows. Raises StoreError when Redis fails, DataError when it holds no state."""
    states: list[IntentState] = []
    sizes: list[int] = []
    lists: list[int] = []
    try:
        for users in batched(islice(_states(link), limit), AT_ONCE):
            for state, size in users:
                states.append(state)
                sizes.append(size)
            pipe = link.pipeline(transaction=False)
            for state, _ in users:
                pipe.strlen(candidates_key(state.user_id))
            lists += [size for size in pipe.execute() if size]
    except redis.RedisError as error:
        raise StoreError(f"Redis: {error}", mend="See `./beforehand status`.") from None
    if not states:
        raise DataError("Redis holds no user's state", mend="Let the stream and a worker run first.")
    newest = max(max(state.times, default=0) for state in states)
    return Seen(
        day=[_user(state, newest) for state in states],
        state_bytes=sum(sizes) // len(sizes),
        list_bytes=sum(lists) // len(lists) if lists else k_max * ITEM_BYTES,
        num_lists=len(lists),
        cut=len(states) == limit,
    )


def _user(state: IntentState, newest_ms: int) -> User:
    begin_ms = newest_ms - int(DAY_S * 1000)
    times = tuple((at - begin_ms) / 1000 for at in state.times if at > begin_ms)
    return User(state.user_id, str(state.bucket), times)


def _states(link: redis.Redis) -> Iterator[tuple[IntentState, int]]:
    for keys in batched(link.scan_iter(match=f"{PREFIX}:*:state", count=AT_ONCE), AT_ONCE):
        values: Any = link.mget(keys)
        for raw in values:
            if raw is not None:
                try:
                    yield decode_state(raw), len(raw)
                except DataError:
                    continue
