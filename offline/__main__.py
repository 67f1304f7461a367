"""``./beforehand data|build|release`` and, for developers, ``python -m offline fixture``.

A verb's module is imported when the verb runs: torch and Beam take seconds.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from schemas import cli
from schemas.locations import ROOT

# Threads that wait give their core back: a build shares its machine. Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
GENERIC = """
A shop's own files are CSV or Parquet. Catalogue: item_id, title[, text, category, brand].
Events: user_id, item_id, kind (impression, click, cart, purchase), at (milliseconds since 1970, or a date and time
with its offset)[, event_id]. Profiles: user_id, bucket. A bad row is reported by number and reason (rejected.jsonl);
every other row is used."""


def fixture(args: argparse.Namespace) -> cli.Result:
    """Make ``tests/fixtures`` anew, or a release without training elsewhere."""
    if args.untrained:
        return _untrained(args.untrained)
    from offline.fixture import make_fixture

    folder = ROOT / "tests" / "fixtures"
    with cli.step("fixture release") as made:
        manifest = make_fixture(folder)
        made(f"{manifest.id} in {folder.relative_to(ROOT)}")
    return {"release": manifest.id, "files": len(manifest.content.files)}


def _untrained(folder: Path) -> cli.Result:
    from offline.untrained import make_untrained
    from schemas.plan import load_plan

    with cli.step("release without training") as made:
        manifest = make_untrained(folder, load_plan())
        made(manifest.id)
    return {"release": manifest.id}


def main(argv: list[str]) -> None:
    """Parse the command line and run the verb."""
    top, verbs = cli.parser("offline", "Data, training and releases.")
    name = argv[0] if argv else ""
    if name == "data":
        from offline.data import verb as data

        about = "Make a data set: catalogue, training events, held-back events and targets." + GENERIC
        data.arguments(cli.verb(verbs, "data", data.make_data, about, "data --small"))
    elif name == "build":
        from offline.build import verb as build

        about = "Build a release from a data set, stage by stage; a stage whose inputs have not changed is skipped."
        build.arguments(cli.verb(verbs, "build", build.build_release, about, "build --data journey-small"))
    elif name == "release":
        from offline import releases

        about = "List, show, verify, promote and roll back releases."
        releases.arguments(cli.verb(verbs, "release", releases.release, about, "release list"))
    elif name == "insert":
        from offline.build import insert_verb

        about = "Put new items into the newest release of a data set: codes by the nearest centroids, no training."
        insert_verb.arguments(cli.verb(verbs, "insert", insert_verb.insert_items, about, "insert --items new.csv"))
    elif name == "items":
        from offline.index import verb as lookup

        about = "Show what is where in a release's semantic index: the item of an id, or the items under a prefix."
        lookup.arguments(cli.verb(verbs, "items", lookup.items, about, "items --prefix 12,7"))
    elif argv[:2] == ["bench", "index"]:
        from offline.index import bench

        about = "Measure the semantic index at the size of a large shop, on made-up items, on one thread."
        bench.arguments(cli.verb(verbs, "bench", bench.run, about, "bench index --items 1000000 --json"))
    elif argv[:2] == ["bench", "decode"]:
        from offline import decode_bench as decode

        about = "Measure the decoder's search, with and without limits, on made-up items and weights." + decode.ABOUT
        decode.arguments(cli.verb(verbs, "bench", decode.run, about, "bench decode --json"))
    elif argv[:2] == ["bench", "quality"]:
        from offline.quality import verb as quality

        about = "Compare the generator with popularity, neighbours and SASRec by the public protocols." + quality.ABOUT
        quality.arguments(cli.verb(verbs, "bench", quality.bench, about, "bench quality --data beauty --json"))
    elif name == "gain":
        from offline import gain

        about = "Measure what the prompt adds to Recall@10 while the near-line tier lags (part of `bench edge`)."
        gain.arguments(cli.verb(verbs, "gain", gain.gain, about, "bench edge --invoices invoices.parquet"))
    elif name == "numbers":
        from offline import numbers

        about = "The offline tier's numbers for given cases, to be compared with the other tiers' (part of `parity`)."
        numbers.arguments(cli.verb(verbs, "numbers", numbers.numbers, about, "parity --users 50"))
    else:
        about = "Make the tiny release that the tests use."
        parser = cli.verb(verbs, "fixture", fixture, about, "fixture (python -m offline fixture)")
        about = "instead: a release at the plan's sizes, without training, for `bench online`"
        parser.add_argument("--untrained", type=Path, metavar="FOLDER", help=about)
    cli.main(top, argv)


if __name__ == "__main__":
    main(sys.argv[1:])
