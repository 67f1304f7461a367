"""The verbs of this room: ``python -m edge edge prompts …``."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from edge.exports import KINDS
from edge.make_bundle import bundle
from edge.make_vectors import SETTINGS, VECTORS, vectors
from edge.measure import bench
from edge.numbers import numbers
from edge.prompts import prompts
from edge.roll_out import rollout
from schemas import cli
from schemas.locations import public_key_path


def _release(verb: ArgumentParser, *, required: bool = True) -> None:
    verb.add_argument("--release", required=required, metavar="ID|FOLDER", help="the release to use")
    verb.add_argument("--key", type=Path, default=public_key_path(), help="the key that it must be signed with")


def _bundles(verb: ArgumentParser) -> None:
    verb.add_argument("--out", type=Path, metavar="FOLDER", help="of all bundles (default: edge/ in the state folder)")
    verb.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change the plan")


def _bundle(jobs: Any) -> None:
    verb = cli.verb(
        jobs, "bundle", bundle, "make what devices download, from a release", "edge bundle --release 0123456789abcdef"
    )
    _release(verb)
    _bundles(verb)
    verb.add_argument("--graph", choices=KINDS, help="by default the fastest within the bounds")
    verb = cli.verb(
        jobs,
        "rollout",
        rollout,
        "say who gets a bundle: current.json",
        "edge rollout --bundle 0123456789abcdef --share 0.05",
    )
    verb.add_argument("--bundle", required=True, metavar="ID", help="what `edge bundle` made")
    verb.add_argument("--share", type=float, help="of devices (default: the plan's)")
    verb.add_argument("--min-app", metavar="VERSION", help="oldest version of the app (default: the plan's)")
    _bundles(verb)


def _prompts(jobs: Any) -> None:
    verb = cli.verb(
        jobs,
        "prompts",
        prompts,
        "make the prompt embeddings of recorded sessions, as a device would",
        "edge prompts --targets targets.jsonl --release 0123456789abcdef --out prompts.jsonl",
    )
    _release(verb)
    verb.add_argument("--bundle", type=Path, metavar="FOLDER", help="of that release: use its graph and codes")
    verb.add_argument("--targets", type=Path, required=True, help="JSON lines: user_id, at, local_events")
    verb.add_argument("--out", type=Path, required=True, help="JSON lines to write: user_id, prompt")
    verb.add_argument("--limit", type=int, help="sessions at most")
    verb.add_argument("--time-limit", type=float, default=1000.0, metavar="MS", help="of each prompt (default 1000)")


def _numbers(jobs: Any) -> None:
    about = "a device's prompt rows for given cases, to be compared with the other tiers'"
    verb = cli.verb(jobs, "numbers", numbers, about, "parity --users 50 (it calls `edge numbers`)")
    _release(verb)
    verb.add_argument("--bundle", type=Path, metavar="FOLDER", help="of that release: use its graph and codes")
    verb.add_argument("--cases", type=Path, required=True, help="JSON lines (schemas.cases)")
    verb.add_argument("--out", type=Path, required=True, help="JSON to write: prompt rows by case")


def _vectors(jobs: Any) -> None:
    verb = cli.verb(
        jobs,
        "vectors",
        vectors,
        "make the test bundle and the vectors that every SDK must reproduce",
        "edge vectors --release tests/fixtures/release --key tests/fixtures/release.pub",
    )
    _release(verb)
    verb.add_argument("--shard-bytes", type=int, default=SETTINGS.shard_bytes, help="of a shard (default: several)")
    verb.add_argument("--sign", type=Path, help="the test key (default: the same name with .pem)")
    verb.add_argument("--out", type=Path, default=VECTORS, metavar="FOLDER", help="the folder to write")


def main() -> None:
    """Parse and run."""
    top, verbs = cli.parser("edge", "What runs on the device.")
    edge = verbs.add_parser("edge", help="make and try what devices run")
    jobs = edge.add_subparsers(dest="job", required=True, metavar="JOB")
    _bundle(jobs)
    _prompts(jobs)
    _numbers(jobs)
    _vectors(jobs)
    verb = cli.verb(
        jobs,
        "bench",
        bench,
        "measure the Python runtime on vectors of a bundle",
        "edge bench --key tests/fixtures/release.pub",
    )
    verb.add_argument("--vectors", type=Path, default=VECTORS, metavar="FOLDER", help="what `edge vectors` made")
    verb.add_argument("--key", type=Path, default=public_key_path(), help="the key that it must be signed with")
    verb.add_argument("--runs", type=int, default=500, help="embeddings to time (default 500)")
    cli.main(top)


if __name__ == "__main__":
    main()
