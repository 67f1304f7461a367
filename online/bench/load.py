"""The load generator, a process of its own: ``python -m online.bench.load`` reads a ``Job`` and writes a ``Report``.

Open loop: arrivals are drawn beforehand and each answer is timed from when its request was due, not from when it could
be sent, so a slow service can't slow down those who measure it (coordinated omission).
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

import msgspec
import uvloop

from schemas.api import RecallRequest, RecallResponse
from schemas.names import Rung

USER = "bench-{}"
_decode = msgspec.msgpack.Decoder(RecallResponse).decode
_encode = msgspec.msgpack.Encoder().encode


class Job(msgspec.Struct):
    """``rate`` requests a second for ``seconds``; rate 0: each connection asks as fast as it is answered."""

    host: str
    port: int
    seconds: float
    rate: float
    connections: int
    users: int
    budget_ms: float
    slack_ms: float
    k: int = 50
    tell_value: bool = True  # else every request says it is worth the same: first come, first served
    seed: int = 1


class Report(msgspec.Struct):
    """Counts and times of one run. ``good_value`` is the value of those generated for in time, of ``value``."""

    requests: int = 0
    errors: int = 0
    late: int = 0
    wrong_user: int = 0
    value: float = 0.0
    good_value: float = 0.0
    generated: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0  # of this process
    latency_ms: list[float] = []
    communication_ms: float = 0.0  # of all answers together
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

    async def run(self) -> Report:
        """All of it."""
        job, report = self._job, self._report
        due: asyncio.Queue[float | None] = asyncio.Queue()
        lanes = [asyncio.create_task(self._lane(due)) for _ in range(job.connections)]
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
        report.rungs, report.skipped = dict(self._rungs), dict(self._skipped)
        return report

    def _arrivals(self, begun: float) -> Iterator[float]:
        at = begun
        while at < begun + self._job.seconds:
            yield at
            at += self._draw.expovariate(self._job.rate)

    async def _lane(self, due: asyncio.Queue[float | None]) -> None:
        """One connection, one request at a time."""
        reader, writer = await asyncio.open_connection(self._job.host, self._job.port)
        if self._job.rate:
            while (at := await due.get()) is not None:
                await self._ask(reader, writer, at)
        else:
            ends = time.perf_counter() + self._job.seconds
            while time.perf_counter() < ends:
                await self._ask(reader, writer, time.perf_counter())
        writer.close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, at: float) -> None:
        job, report = self._job, self._report
        user_id = USER.format(self._draw.randrange(job.users))
        value = self._draw.lognormvariate(0, 1)  # a few requests are worth much: carts and ads, not page views
        said = value if job.tell_value else 1.0
        body = _encode(RecallRequest(user_id=user_id, k=job.k, budget_ms=job.budget_ms, value=said))
        head = b"POST /v1/recall HTTP/1.1\r\nhost: b\r\ncontent-type: application/msgpack\r\ncontent-length: %d\r\n\r\n"
        report.requests += 1
        report.value += value
        try:
            writer.write(head % len(body) + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            status, size = answer[9:12], int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            content = await reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError):
            report.errors += 1
            return
        took_ms = (time.perf_counter() - at) * 1000
        if status != b"200":
            report.errors += 1
            return
        self._book(_decode(content), user_id, value, took_ms)

    def _book(self, response: RecallResponse, user_id: str, value: float, took_ms: float) -> None:
        job, report = self._job, self._report
        in_time = took_ms <= job.budget_ms + job.slack_ms
        report.late += not in_time
        report.wrong_user += response.user_id != user_id
        report.latency_ms.append(took_ms)
        report.communication_ms += took_ms - response.ledger.total_ms + response.ledger.stages_ms.get("store", 0.0)
        self._rungs[response.rung] += 1
        if response.rung is Rung.GENERATE:
            report.generated += 1
            report.good_value += value if in_time else 0.0
        else:
            self._skipped[response.skipped.get(Rung.GENERATE, "")] += 1


def main() -> None:
    """Job on stdin, report on stdout."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.stdout.buffer.write(msgspec.json.encode(runner.run(Generator(job).run())))


if __name__ == "__main__":
    main()
