"""One input for every tier: what ``./beforehand parity`` hands to each room's ``numbers`` (law 8). JSON lines."""

from __future__ import annotations

from pathlib import Path

import msgspec

from schemas.errors import DataError
from schemas.event import Event, Id
from schemas.window import WindowEvent


class ParityCase(msgspec.Struct, frozen=True):
    """A user at one moment: the window as near-line sees it, and what only the device knows."""

    user_id: Id
    at: int  # wall time of the request, ms
    window: list[WindowEvent]  # newest first
    local_events: list[Event] = []  # oldest first


def read_cases(path: Path) -> list[ParityCase]:
    """The lines of ``path``. Raises DataError naming the line that is no case."""
    decoder = msgspec.json.Decoder(ParityCase)
    cases: list[ParityCase] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            cases.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            mend = "Let `./beforehand parity` write it."
            raise DataError(f"not a case: {error}", where=f"{path}:{number}", value=line[:80], mend=mend) from None
    return cases
