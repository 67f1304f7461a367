"""JSON Schemas of the contracts, under ``schemas/json/``: made from the structs, checked in, so that a change shows."""

from __future__ import annotations

from pathlib import Path

import msgspec

from schemas.api import Explanation, RecallRequest, RecallResponse
from schemas.event import Event, Forget
from schemas.item_change import ItemChange
from schemas.release import Catalogue, Manifest, Profiles
from schemas.state import Candidates, IntentState
from schemas.window import DeadLetter, Window

CONTRACTS: dict[str, type[msgspec.Struct]] = {
    "event.v1": Event,
    "forget.v1": Forget,
    "item_change.v1": ItemChange,
    "window.v1": Window,
    "dead_letter.v1": DeadLetter,
    "intent_state.v1": IntentState,
    "candidates.v1": Candidates,
    "recall_request.v1": RecallRequest,
    "recall_response.v1": RecallResponse,
    "explanation.v1": Explanation,
    "manifest.v1": Manifest,
    "catalogue.v1": Catalogue,
    "profiles.v1": Profiles,
}


def render(struct: type[msgspec.Struct]) -> bytes:
    """The struct's JSON Schema, indented, keys in a fixed order."""
    raw = msgspec.json.encode(msgspec.json.schema(struct), order="sorted")
    return msgspec.json.format(raw, indent=2) + b"\n"


def write_contracts(folder: Path) -> list[str]:
    """Write every schema and return the names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, struct in CONTRACTS.items():
        (folder / f"{name}.json").write_bytes(render(struct))
    return sorted(CONTRACTS)


def check_contracts(folder: Path) -> list[str]:
    """Names whose file is missing or differs from the code, and files that no contract has."""
    stale = [
        name
        for name, struct in CONTRACTS.items()
        if not (folder / f"{name}.json").is_file() or (folder / f"{name}.json").read_bytes() != render(struct)
    ]
    return sorted(stale + [path.stem for path in folder.glob("*.json") if path.stem not in CONTRACTS])
