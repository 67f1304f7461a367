"""What is replayed and encoded: Online Retail with a release of it, or else the fixture's items."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nearline.bench.traffic import Log
from schemas.cli import say
from schemas.errors import DataError, ReleaseError
from schemas.locations import ROOT, state_dir
from schemas.release import CATALOGUE, MANIFEST, Catalogue

DATA = "online-retail"
INVOICES = Path("shared", "data", DATA, "invoices.parquet")
FIXTURES = ROOT / "tests" / "fixtures"
# What encoding costs does not depend on how well the model was trained.
BUILT_WITH = ("model.epochs=1", "model.align=false")


@dataclass(frozen=True)
class Subject:
    """A log of events, and the release that encodes its windows with the key that verifies it."""

    name: str
    log: Log
    release: Path
    key: Path


def choose(release: Path | None, key: Path | None, invoices: Path) -> Subject:
    """The log of ``invoices``, with a release built of it unless one is named; without invoices a made-up log.

    Data and release are built in a state folder of their own at the first run and then kept.
    """
    if release is not None:
        release = release.resolve()
        key = key or next((one for one in _keys(release) if one.is_file()), None)
        if key is None:
            raise ReleaseError("no key to verify it with", where=str(release), mend="Name one with --key.")
    if not invoices.is_file():
        say(f"no {invoices.name} of Online Retail: a made-up log instead; name the file with --invoices")
        release, key = release or FIXTURES / "release", key or FIXTURES / "release.pub"
        items = msgspec.msgpack.decode((release / CATALOGUE).read_bytes(), type=Catalogue).item_ids
        return Subject("made up", Log.made_up(items), release.resolve(), key.resolve())
    home = state_dir() / "bench-stream"
    data = home / "data" / DATA
    if not (data / "dataset.json").is_file():
        _run(home, "data", "--source", DATA, "--file", str(invoices.resolve()))
    if release is None:
        found = sorted((home / "releases").glob(f"*/{MANIFEST}"))
        if not found:
            _run(home, "build", "--data", DATA, *(word for one in BUILT_WITH for word in ("--set", one)))
            found = sorted((home / "releases").glob(f"*/{MANIFEST}"))
        release, key = found[-1].parent, home / "keys" / "release.pub"
    assert key is not None
    return Subject(DATA, Log.read([data / "bootstrap.jsonl", data / "replay.jsonl"]), release.resolve(), key.resolve())


def _keys(release: Path) -> list[Path]:
    """Where a release's public key usually is."""
    return [release.parent / "release.pub", release.parent.parent / "keys" / "release.pub"]


def _run(home: Path, *words: str) -> None:
    say(f"{words[0]} of {DATA}, once: kept in {home.name}")
    command = [str(ROOT / "beforehand"), *words, "--json"]
    environ = {**os.environ, "BEFOREHAND_STATE": str(home)}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        said = json.loads(done.stdout.splitlines()[-1])["error"] if done.stdout.strip() else "see above"
        raise DataError(f"it failed: {said}", where=" ".join(words), mend="Run that command by itself.")
