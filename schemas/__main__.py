"""``beforehand contracts``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from schemas.cli import main, parser, say, verb
from schemas.errors import BeforehandError
from schemas.json_schema import check_contracts, write_contracts


def contracts_verb(args: argparse.Namespace) -> dict[str, Any]:
    """``contracts check`` and ``contracts write``."""
    folder = Path(__file__).parent / "json"
    if args.what == "write":
        names = write_contracts(folder)
        say(f"wrote {len(names)} schemas to {folder}")
        return {"written": names}
    stale = check_contracts(folder)
    if stale:
        raise BeforehandError(
            "the JSON Schemas differ from the code",
            where=", ".join(stale),
            mend="Run `./beforehand contracts write` and read the difference: old readers must still cope.",
        )
    say("✓ the JSON Schemas agree with the code")
    return {"stale": stale}


def run() -> None:
    """The verb of this room."""
    top, verbs = parser("contracts", "The contracts between the rooms.")
    contracts = verb(verbs, "contracts", contracts_verb, "check or write the JSON Schemas", "contracts check")
    contracts.add_argument("what", choices=("check", "write"))
    main(top)


if __name__ == "__main__":
    run()
