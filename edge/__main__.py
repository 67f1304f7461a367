"""The verbs of this room: ``python -m edge edge prompts …``."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from edge.make_vectors import VECTORS, vectors
from edge.prompts import prompts
from schemas import cli
from schemas.locations import public_key_path


def _release(verb: ArgumentParser) -> None:
    verb.add_argument("--release", required=True, metavar="ID|FOLDER", help="the release to use")
    verb.add_argument("--key", type=Path, default=public_key_path(), help="the key that it must be signed with")


def main() -> None:
    """Parse and run."""
    top, verbs = cli.parser("edge", "What runs on the device.")
    edge = verbs.add_parser("edge", help="make and try what devices run")
    jobs = edge.add_subparsers(dest="job", required=True, metavar="JOB")
    verb = cli.verb(
        jobs,
        "prompts",
        prompts,
        "make the prompt embeddings of recorded sessions, as a device would",
        "edge prompts --targets targets.jsonl --release 0123456789abcdef --out prompts.jsonl",
    )
    _release(verb)
    verb.add_argument("--targets", type=Path, required=True, help="JSON lines: user_id, at, local_events")
    verb.add_argument("--out", type=Path, required=True, help="JSON lines to write: user_id, prompt")
    verb.add_argument("--limit", type=int, help="sessions at most")
    verb.add_argument("--time-limit", type=float, default=1000.0, metavar="MS", help="of each prompt (default 1000)")
    verb = cli.verb(
        jobs,
        "vectors",
        vectors,
        "write the test vectors that every SDK must reproduce",
        "edge vectors --release tests/fixtures/release --key tests/fixtures/release.pub",
    )
    _release(verb)
    verb.add_argument("--out", type=Path, default=VECTORS, help="the file to write")
    cli.main(top)


if __name__ == "__main__":
    main()
