"""Submits a job in a process of its own: one Java process can hold one version of the job's classes only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from schemas.errors import BeforehandError, StoreError
from schemas.locations import ROOT
from streaming.resume import Made

TIMEOUT_S = 120


class Order(msgspec.Struct, frozen=True):
    """What the process is told on its standard input."""

    made: Made
    flink: str
    start_from: str | None


class Answer(msgspec.Struct, frozen=True):
    """What it says on its standard output."""

    job_id: str = ""
    problem: str = ""


def submit_apart(made: Made, flink_url: str, start_from: str | None) -> str:
    """Hand the job to the cluster; returns its id. Raises ``StoreError`` when it is refused."""
    order = msgspec.json.encode(Order(made, flink_url, start_from))
    command = [sys.executable, "-m", "streaming.submit"]
    try:
        done = subprocess.run(command, input=order, capture_output=True, cwd=ROOT, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise StoreError(f"Flink took no job within {TIMEOUT_S} s", where=flink_url) from None
    try:
        answer = msgspec.json.decode(done.stdout.splitlines()[-1], type=Answer)
    except (IndexError, msgspec.DecodeError):
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise StoreError(f"the job could not be submitted: {said}", where=flink_url) from None
    if answer.problem:
        raise StoreError(answer.problem, where=flink_url)
    return answer.job_id


def _main() -> None:
    from streaming import windows  # noqa: PLC0415 - PyFlink, which whoever asks for the job need not import

    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    jars = [Path(jar) for jar in order.made.jars]
    try:
        windows.start_java(jars)
        answer = Answer(job_id=windows.submit(order.made.settings, order.flink, jars, order.start_from))
    except BeforehandError as error:
        answer = Answer(problem=error.problem)
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")


if __name__ == "__main__":
    _main()
