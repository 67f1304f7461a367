"""The load generator, a process of its own: ``python -m online.bench.load`` reads a ``Job`` and writes a ``Report``.

Open loop: arrivals are drawn beforehand and each answer is timed from when its request was due, not from when it could
be sent, so a slow service can't slow down those who measure it (coordinated omission).
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec
import uvloop

from online.bench.link import Link
from online.client import LEAST_MS
from schemas.api import RecallRequest, RecallResponse
from schemas.names import Rung, State

USER = "bench-{}"
COMPARED, ALIKE = 5, 3
"""Of a user's first items, how many the answer must hold: equal scores may come in another order in a batch."""
_decode = msgspec.msgpack.Decoder(RecallResponse).decode
_encode = msgspec.msgpack.Encoder().encode


class Tell(StrEnum):
    """What a request says it is worth."""

    VALUE = "value"  # the truth
    SAME = "same"  # all alike: first come, first served
    RANDOM = "random"  # something else: shedding at random


class Job(msgspec.Struct):
    """``rate`` requests a second for ``seconds``; rate 0: each connection asks as fast as it is answered."""

    host: str
    ports: list[int]  # of the instances; the next one is asked when one can't be reached
    seconds: float
    rate: float
    connections: int
    users: int
    budget_ms: float
    slack_ms: float
    k: int = 50
    tell: Tell = Tell.VALUE
    seed: int = 1
    spread: bool = False  # the connections begin at all instances in turn, else at the first
    expected: str | None = None  # msgpack: user -> the first items that their own state makes


class Report(msgspec.Struct):
    """Counts and times of one run. ``good_value`` is the value of those generated for in time, of ``value``."""

    requests: int = 0
    errors: int = 0  # no answer, or another status than 200
    errors_5xx: int = 0
    moved: int = 0  # answered by another instance than the connection's own
    late: int = 0  # by the client's clock
    late_in_service: int = 0  # by the service's own
    wrong_user: int = 0
    compared: int = 0  # answers whose items were compared with the user's own
    value: float = 0.0
    good_value: float = 0.0
    generated: int = 0
    num_items: int = 0  # generated
    seconds: float = 0.0
    cpu_s: float = 0.0  # of this process
    latency_ms: list[float] = []
    communication_ms: float = 0.0  # of all answers together
    stages_ms: dict[str, float] = {}  # the ledgers' stages, and what is outside of them, of all answers together
    rungs: dict[str, int] = {}
    skipped: dict[str, int] = {}  # why generate did not answer


class Generator:
    """One run."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._draw = random.Random(job.seed)  # noqa: S311 - a load, not a secret
        self._report = Report()
        self._rungs: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._stages: defaultdict[str, float] = defaultdict(float)
        expected = Path(job.expected).read_bytes() if job.expected else msgspec.msgpack.encode({})
        self._expected = msgspec.msgpack.decode(expected, type=dict[str, list[str]])

    async def run(self) -> Report:
        """All of it."""
        job, report = self._job, self._report
        due: asyncio.Queue[float | None] = asyncio.Queue()
        turns = [number % len(job.ports) if job.spread else 0 for number in range(job.connections)]
        links = [Link(job.host, [*job.ports[turn:], *job.ports[:turn]]) for turn in turns]
        for link in links:  # before the clock runs: a shop's connections are there when its requests come
            with suppress(OSError):  # its first request finds out
                await link.open()
        lanes = [asyncio.create_task(self._lane(link, due)) for link in links]
        begun, cpu = time.perf_counter(), time.process_time()
        if job.rate:
            for at in self._arrivals(begun):
                if (wait := at - time.perf_counter()) > 0:
                    await asyncio.sleep(wait)
                due.put_nowait(at)
        for _ in lanes:
            due.put_nowait(None)
        await asyncio.gather(*lanes)
        report.seconds, report.cpu_s = time.perf_counter() - begun, time.process_time() - cpu
        report.rungs, report.skipped, report.stages_ms = dict(self._rungs), dict(self._skipped), dict(self._stages)
        return report

    def _arrivals(self, begun: float) -> Iterator[float]:
        at = begun
        while at < begun + self._job.seconds:
            yield at
            at += self._draw.expovariate(self._job.rate)

    async def _lane(self, link: Link, due: asyncio.Queue[float | None]) -> None:
        """One connection, one request at a time."""
        if self._job.rate:
            while (at := await due.get()) is not None:
                await self._ask(link, at)
        else:
            ends = time.perf_counter() + self._job.seconds
            while time.perf_counter() < ends:
                await self._ask(link, time.perf_counter())
        link.close()

    async def _ask(self, link: Link, at: float) -> None:
        job, report = self._job, self._report
        user_id = USER.format(self._draw.randrange(job.users))
        value = self._value()
        said = {Tell.VALUE: value, Tell.SAME: 1.0}.get(job.tell) or self._value()
        asked = time.perf_counter()

        def body() -> bytes:
            left_ms = max(job.budget_ms - (time.perf_counter() - asked) * 1000, LEAST_MS)
            return _encode(RecallRequest(user_id=user_id, k=job.k, budget_ms=left_ms, value=said))

        report.requests += 1
        report.value += value
        try:
            status, content = await link.post("/v1/recall", body)
        except OSError:
            report.errors += 1
            return
        took_ms = (time.perf_counter() - at) * 1000
        report.moved += link.moved
        if status != 200:
            report.errors += 1
            report.errors_5xx += status >= 500
            return
        self._book(_decode(content), user_id, value, took_ms)

    def _value(self) -> float:
        """A few requests are worth much: carts and ads, not page views."""
        return self._draw.lognormvariate(0, 1)

    def _book(self, response: RecallResponse, user_id: str, value: float, took_ms: float) -> None:
        job, report = self._job, self._report
        in_time = took_ms <= job.budget_ms + job.slack_ms
        report.late += not in_time
        report.late_in_service += response.ledger.total_ms > response.ledger.budget_ms + job.slack_ms
        report.wrong_user += response.user_id != user_id or not self._own(response)
        report.latency_ms.append(took_ms)
        outside_ms, stages_ms = took_ms - response.ledger.total_ms, response.ledger.stages_ms
        report.communication_ms += outside_ms + stages_ms.get("store", 0.0)
        for stage, stage_ms in {**stages_ms, "outside": outside_ms}.items():
            self._stages[stage] += stage_ms
        self._rungs[response.rung] += 1
        if response.rung is Rung.GENERATE:
            report.generated += 1
            report.num_items += len(response.items)
            report.good_value += value if in_time else 0.0
        else:
            self._skipped[response.skipped.get(Rung.GENERATE, "")] += 1

    def _own(self, response: RecallResponse) -> bool:
        """Items generated from a state are those of this user's state, as far as it is known what those are."""
        expected = self._expected.get(response.user_id)
        used = response.assets["intent_state"].state in (State.FRESH, State.STALE) if response.assets else False
        if expected is None or not used or response.rung is not Rung.GENERATE:
            return True
        self._report.compared += 1
        return len({item.item_id for item in response.items}.intersection(expected)) >= min(ALIKE, len(expected))


def main() -> None:
    """Job on stdin, report on stdout."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.stdout.buffer.write(msgspec.json.encode(runner.run(Generator(job).run())))


if __name__ == "__main__":
    main()
