"""What ``stream status`` says about a job."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from schemas.units import human_seconds
from streaming.flink import Flink, Job

RECORDS, BAD, BAD_SHARE = "bh_records", "bh_bad_records", "bh_bad_share"
PENDING, EMIT_LAG = "pendingRecords", "currentEmitEventTimeLag"
FETCHES = 12  # a second apart: Flink's own interval is 10 s
NAMES = {RECORDS, BAD, BAD_SHARE, PENDING, EMIT_LAG}


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """One job now. None is what Flink does not tell (yet).

    Counts start anew with every start of the job, and are up to 10 s old (metrics.fetcher.update-interval).
    """

    job_id: str
    name: str
    state: str
    uptime_s: float
    num_restarts: int | None
    records: int | None  # read from the topic
    dead_letters: int | None
    bad_share: float | None  # of the last minute, of the worst subtask: what nearline.max_bad_share bounds
    lag_records: int | None  # in the topic and not read yet
    lag_ms: int | None  # age of the newest record when it was read, by the broker's clock
    num_checkpoints: int
    num_failed_checkpoints: int
    checkpoint: str | None
    checkpoint_age_s: float | None
    cause: str | None  # of the newest failure


def report(flink: Flink, job: Job) -> JobReport:
    """Ask the cluster about one job."""
    details = flink.ask(f"/jobs/{job.job_id}")
    vertices = [] if job.over else [vertex["id"] for vertex in details["vertices"]]
    metrics = _fresh_metrics(flink, job.job_id, vertices)
    restarts = {m["id"]: m.get("value") for m in flink.ask(f"/jobs/{job.job_id}/metrics?get=numRestarts")}
    checkpoints = flink.ask(f"/jobs/{job.job_id}/checkpoints")
    latest = checkpoints["latest"]["completed"] or {}
    acknowledged = latest.get("latest_ack_timestamp")
    return JobReport(
        job_id=job.job_id,
        name=job.name,
        state=job.state,
        uptime_s=details["duration"] / 1000,
        num_restarts=_whole(restarts.get("numRestarts")),
        records=_whole(metrics.get(RECORDS, {}).get("sum")),
        dead_letters=_whole(metrics.get(BAD, {}).get("sum")),
        bad_share=metrics.get(BAD_SHARE, {}).get("max"),
        lag_records=_whole(metrics.get(PENDING, {}).get("sum")),
        lag_ms=_whole(metrics.get(EMIT_LAG, {}).get("max")),
        num_checkpoints=checkpoints["counts"]["completed"],
        num_failed_checkpoints=checkpoints["counts"]["failed"],
        checkpoint=latest.get("external_path"),
        checkpoint_age_s=time.time() - acknowledged / 1000 if acknowledged else None,
        cause=flink.cause(job.job_id, job.state),
    )


def _fresh_metrics(flink: Flink, job_id: str, vertices: list[str]) -> dict[str, dict[str, float]]:
    """What the vertices measure.

    Flink answers with what it has, and fetches anew only when it is asked and its last fetch is old enough. So it is
    asked twice, and a young job until it tells something.
    """
    metrics: dict[str, dict[str, float]] = {}
    for turn in range(FETCHES if vertices else 0):
        time.sleep(1.0 if turn else 0.0)
        for vertex in vertices:
            metrics.update(flink.metrics(job_id, vertex, NAMES))
        if turn and RECORDS in metrics:
            break
    return metrics


def lines(found: JobReport) -> list[str]:
    """The report for people."""
    age = found.checkpoint_age_s
    checkpoint = "no checkpoint yet" if age is None else f"checkpoint {human_seconds(round(age))} ago"
    made = [
        f"{found.name} {found.job_id}: {found.state} for {human_seconds(round(found.uptime_s))}, "
        f"{_shown(found.num_restarts)} restarts, {checkpoint}, {found.num_failed_checkpoints} failed",
        f"  {_shown(found.records)} records read, {_shown(found.lag_records)} waiting, "
        f"read {_shown(found.lag_ms)} ms after their arrival",
        f"  {_shown(found.dead_letters)} dead letters, {_share(found.bad_share)} of the last minute's records",
    ]
    return [*made, f"  newest failure: {found.cause}"] if found.cause else made


def _whole(value: Any) -> int | None:
    """A count or a time; Flink says -1 or NaN where it does not know."""
    number = -1.0 if value is None else float(value)
    return round(number) if number >= 0 else None


def _shown(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.1%}"
