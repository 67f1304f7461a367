"""``./beforehand data|build|release`` and, for developers, ``python -m offline fixture``."""

from __future__ import annotations

import argparse

from schemas import cli
from schemas.locations import ROOT


def fixture(_args: argparse.Namespace) -> cli.Result:
    """Make ``tests/fixtures`` anew."""
    from offline.fixture import make_fixture  # noqa: PLC0415 — torch takes seconds to import

    folder = ROOT / "tests" / "fixtures"
    with cli.step("fixture release") as made:
        manifest = make_fixture(folder)
        made(f"{manifest.id} in {folder.relative_to(ROOT)}")
    return {"release": manifest.id, "files": len(manifest.content.files)}


def data(args: argparse.Namespace) -> cli.Result:
    """Write a data set."""
    from offline.data.verb import make_data  # noqa: PLC0415

    return make_data(args)


def main() -> None:
    """Parse the command line and run the verb."""
    top, verbs = cli.parser("offline", "Data, training and releases.")
    cli.verb(
        verbs, "fixture", fixture, "make the tiny release that the tests use", "fixture  # python -m offline fixture"
    )
    cli.main(top)


if __name__ == "__main__":
    main()
