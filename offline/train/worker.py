"""One of several processes that train a build's generator: ``torchrun … -m offline.train.worker FOLDER``.

``FOLDER/job.json`` says what to train; the first process leaves the weights and ``trained.json`` there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from safetensors.torch import save_file

from offline.build.stage import Build, Record
from offline.train.fit import Where
from offline.train.ranks import join
from offline.train.trainer import WEIGHTS, Progress
from schemas.errors import DataError
from schemas.plan import Plan

JOB, TRAINED = "job.json", "trained.json"


class Job(msgspec.Struct):
    """What the processes need to know of the build."""

    name: str
    plan: Plan
    threads: int
    device: str
    processes: int
    records: dict[str, Record]


def train_with_others(build: Build, folder: Path) -> Progress:
    """Start the processes, each with its share of the threads, and wait.

    Raises:
        DataError: one of them failed; what it printed stands above.
    """
    threads = max(1, build.threads // build.processes)
    job = Job(build.name, build.plan, threads, build.device, build.processes, build.records)
    (folder / JOB).write_bytes(msgspec.json.encode(job, enc_hook=float))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={build.processes}", "-m", "offline.train.worker", str(folder)]
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise DataError(
            "a training process failed",
            where="train",
            value=f"exit code {done.returncode}",
            mend="Look at what it printed; run the build again, and it goes on from the last epoch.",
        )
    (folder / JOB).unlink()
    return msgspec.json.decode((folder / TRAINED).read_bytes(), type=Progress)


def main(folder: Path) -> None:
    """Train with the others."""
    # The stage starts this module, so this module can't import the stage at its top.
    from offline.build.train_stage import fit_build  # noqa: PLC0415

    job = msgspec.json.decode((folder / JOB).read_bytes(), type=Job, dec_hook=lambda unit, number: unit(number))
    build = Build(
        job.name,
        job.plan,
        threads=job.threads,
        processes=job.processes,
        device=job.device,
        records=job.records,
    )
    ranks = join()
    generator, progress = fit_build(build, Where(job.threads, ranks, job.device))
    if ranks.first:
        save_file(generator.state_dict(), folder / WEIGHTS)
        (folder / TRAINED).write_bytes(msgspec.json.encode(progress))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
