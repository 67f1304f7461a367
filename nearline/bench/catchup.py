"""How a job works through what is in its topic: events against CPU, while it goes on.

The job commits its offsets with every checkpoint. A checkpoint's barrier enters at the sources when it is triggered, so
the offsets committed afterwards belong to the CPU used up to that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata, TopicPartition

from nearline.bench.stand import Meter, Stand
from nearline.guarded import guarded
from schemas.cli import bar
from schemas.errors import StoreError

POLL_S = 0.2
QUIET_S = 3.0
CACHE_S = 3.5  # Flink's statistics are up to 3 s old
LIMIT_S = 3600.0
Progress = Callable[[int], None]


class Point(NamedTuple):
    """``events`` of the topic had been read when the job's processes had used ``cpu_s``, at ``when``."""

    events: int
    cpu_s: float
    when: float


class Group:
    """A consumer group's place in a topic, seen from outside."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._consumer: Any = guarded(
            lambda: KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        )
        numbers = guarded(lambda: self._consumer.partitions_for_topic(topic)) or ()
        self._partitions = [TopicPartition(topic, number) for number in numbers]

    def committed(self) -> int:
        """Records that the group need never read again."""
        return guarded(lambda: sum(self._consumer.committed(one) or 0 for one in self._partitions))

    def end(self) -> int:
        """Records that were ever written."""
        return sum(guarded(lambda: self._consumer.end_offsets(self._partitions)).values())

    def skip(self, label: str, leave: int = 0) -> dict[int, int]:
        """Take all but the newest ``leave`` records for read, by workers whose split is ``label``; none may run.

        Returns where each partition goes on.
        """
        ends = guarded(lambda: self._consumer.end_offsets(self._partitions))
        per_partition = leave // max(1, len(ends))
        named = {one: OffsetAndMetadata(max(0, end - per_partition), label, -1) for one, end in ends.items()}
        guarded(lambda: self._consumer.commit(named))
        return {one.partition: there.offset for one, there in named.items()}

    def close(self) -> None:
        """Leave no connection."""
        self._consumer.close()


def follow(stand: Stand, job_id: str, group: Group, written: Group, meter: Meter) -> list[Point]:
    """Wait until the job has read its topic to the end and writes no more; the points on the way, the last at the end.

    ``written`` is what the job writes. Raises ``StoreError`` when the job fails.
    """
    total, points, seen = group.end(), [Point(0, meter.at(0.0), 0.0)], set[int]()
    grown_at, size, ends = time.time(), written.end(), time.time() + LIMIT_S
    with bar() as progress:
        task = progress.add_task("events read", total=total)
        while group.committed() < total or time.time() - grown_at < QUIET_S:
            _check(stand, job_id, ends)
            if (now := written.end()) != size:
                size, grown_at = now, time.time()
            if (done := group.committed()) != points[-1].events and done not in seen:
                seen.add(done)
                points.append(Point(done, 0.0, time.time()))
                progress.update(task, completed=done)
            time.sleep(POLL_S)
    time.sleep(CACHE_S)
    triggers = _triggers(stand, job_id)
    measured = [_measured(point, triggers, meter) for point in points[1:] if point.events < total]
    return [points[0], *measured, Point(total, meter.at(grown_at + POLL_S), grown_at)]


def _measured(point: Point, triggers: list[tuple[float, float]], meter: Meter) -> Point:
    """The point at its checkpoint's begin: of those that had ended when the offsets were seen, the last."""
    begun = max((start for start, end in triggers if end <= point.when), default=point.when)
    return Point(point.events, meter.at(begun), begun)


def _triggers(stand: Stand, job_id: str) -> list[tuple[float, float]]:
    """Begin and end of the job's last checkpoints, in seconds."""
    history = stand.ask_flink(f"/jobs/{job_id}/checkpoints")["history"]
    return [
        (one["trigger_timestamp"] / 1000, one["latest_ack_timestamp"] / 1000)
        for one in history
        if one["status"] == "COMPLETED"
    ]


def _check(stand: Stand, job_id: str, ends: float) -> None:
    state = stand.ask_flink(f"/jobs/{job_id}")["state"]
    if state not in ("RUNNING", "RESTARTING", "CREATED", "INITIALIZING"):
        raise StoreError(f"the job is {state}", where=f"job {job_id}", mend="Its log is in run/flink/taskmanager.")
    if time.time() > ends:
        raise StoreError(f"the job did not catch up within {LIMIT_S:g} s", where=f"job {job_id}")


def rate(points: list[Point], warm_up: int) -> dict[str, Any]:
    """Events per CPU-second after the first ``warm_up`` events, and of all.

    A job that had no checkpoint within the first half of what comes after its warm-up is counted from its start: a
    short rest says how the job ends, not how it goes.
    """
    last = points[-1]
    soon = (warm_up + last.events) / 2
    warm = next((point for point in points[1:-1] if warm_up <= point.events <= soon), points[0])
    return {
        "events_per_cpu_s": round((last.events - warm.events) / max(1e-9, last.cpu_s - warm.cpu_s)),
        "events": last.events - warm.events,
        "cpu_s": round(last.cpu_s - warm.cpu_s, 2),
        "warm_up_excluded": warm.events > 0,
        "warm_up_events": warm.events,
        "warm_up_cpu_s": round(warm.cpu_s - points[0].cpu_s, 2),
        "all_events_per_cpu_s": round(last.events / max(1e-9, last.cpu_s - points[0].cpu_s)),
    }
