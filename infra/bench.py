"""`./beforehand bench SUBJECT`: the measurements that the documentation quotes, each in its room's environment."""

from __future__ import annotations

import os
import sys

from infra import bench_edge, bench_online, bench_rows, environments
from infra.paths import Layout
from infra.settings import verb_environment

SUBJECTS = {
    "online": (None, "capacity, latency and overload of the look-up service, on a million made-up items"),
    "quality": ("offline", "recall beside popularity, tuned neighbours and SASRec, by the public protocols"),
    "stream": (
        "nearline",
        "the near-line path: events per CPU-second, freshness, bytes per user, rebuild",
    ),
    "rows": (None, "a new event of a long window: kept rows beside encoding the window whole"),
    "decode": ("offline", "the decoder's search: CPU with and without limits; heads beside cross-attention"),
    "index": ("offline", "the semantic index at a million items: build, look-up, nearest neighbours, insertion"),
    "edge": (None, "the prompt on every runtime: time, size, parity, and what it adds to recall"),
    "plan": ("online", "DAG parsing, a plan of 100 assets, promotions under load: failed and mixed answers"),
}
"""Subject -> its tier (which is also its room; None: as ``OWN`` says) and what it measures."""

OWN = {"edge": bench_edge.main, "online": bench_online.main, "rows": bench_rows.main}
"""Those that need more than one room."""

MODULES = {"plan": "infra.plan.bench"}
"""Where it is not the tier's room that measures."""


def main(args: list[str]) -> int:
    """Hand over to the room's own `bench`; exit code 2 for a subject that there isn't."""
    if not args or args[0] not in SUBJECTS:
        asked_for_help = bool(args) and args[0] in ("-h", "--help")
        print("usage: ./beforehand bench SUBJECT [OPTIONS]\n", file=sys.stderr)
        for name, (_, about) in SUBJECTS.items():
            print(f"  {name:<8} {about}   ./beforehand bench {name} --json", file=sys.stderr)
        return 0 if asked_for_help else 2
    tier = SUBJECTS[args[0]][0]
    if tier is None:
        return OWN[args[0]](args[1:])
    layout = Layout.current()
    python = environments.ensure(layout, tier)
    module = MODULES.get(args[0], tier)
    command = [str(python), "-P", "-m", module, "bench", *args]
    sys.stdout.flush()
    os.execve(command[0], command, verb_environment(layout, tier))  # noqa: S606 - the room takes this process over
