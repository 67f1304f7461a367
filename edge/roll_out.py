"""``edge rollout``: who gets which bundle."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from edge.bundle import BundleError
from edge.envelope import read_envelope, seal
from edge.layout import CURRENT, MANIFEST, BundleManifest, Current, Offer, bundles_dir
from edge.names import BundleReason
from edge.rollout import version
from schemas import cli
from schemas.errors import DataError, ReleaseError
from schemas.locations import private_key_path
from schemas.plan import load_plan
from schemas.release import load_private_key


def offers_for(new: Offer, present: Sequence[Offer]) -> list[Offer]:
    """The new offer first; while it is not for everybody, the widest of the present ones for the rest."""
    others = [offer for offer in present if offer.id != new.id]
    everybody = new.share >= 1 and not version(new.min_app)
    return [new] if everybody else [new, *others[-1:]]


def write_current(folder: Path, raw: bytes) -> None:
    """Replace ``current.json`` as a whole."""
    part = folder / f"{CURRENT}.part"
    part.write_bytes(raw)
    part.replace(folder / CURRENT)


def rollout(args: argparse.Namespace) -> dict[str, Any]:
    """The verb: the plan's share of devices and oldest version of the app, unless others are given."""
    plan = load_plan(None, args.set).edge
    share = plan.share if args.share is None else args.share
    min_app = plan.min_app if args.min_app is None else args.min_app
    if not 0 <= share <= 1:
        raise DataError("a share is 0 to 1", where="--share", value=share, mend="Give 0.05 for one device in twenty.")
    key = load_private_key(private_key_path())
    folder = args.out or bundles_dir()
    manifest = read_envelope(folder / args.bundle / MANIFEST, [key.public_key()], BundleManifest)
    offers = offers_for(Offer(id=manifest.id, share=share, min_app=min_app), _present(folder, key.public_key()))
    current = Current(made_at=time.time_ns() // 1_000_000, offers=offers, refresh_s=float(plan.refresh))
    write_current(folder, seal(current, key))
    cli.say(f"✓ {manifest.id} for {share:.0%} of devices with app {min_app} or newer")
    return {"current": str(folder / CURRENT), "made_at": current.made_at, "offers": msgspec.to_builtins(offers)}


def _present(folder: Path, key: Ed25519PublicKey) -> list[Offer]:
    try:
        return read_envelope(folder / CURRENT, [key], Current).offers
    except BundleError as error:
        if error.reason is BundleReason.UNREACHABLE:
            return []
        raise ReleaseError(error.problem, where=error.where, mend="Delete it to begin anew.") from None
