"""Who gets which bundle: decided on the device, so that ``current.json`` is one static file and nobody is counted.

A device draws a random number once (``seed``) and keeps it to itself. Its place in a roll-out is a hash of the seed
and the bundle's id: another bundle begins with other devices, and a growing share keeps those that it has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from edge.code_table import item_hash, spread32
from edge.layout import Offer

_DIGITS = re.compile(r"\d+")


def version(text: str) -> tuple[int, ...]:
    """``"2.10.1-beta"`` → (2, 10, 1): the leading number of each part up to the first part without one, no zeros at
    the end. Tuples compare as versions do."""
    numbers: list[int] = []
    for part in text.split("."):
        digits = _DIGITS.match(part)
        if digits is None:
            break
        numbers.append(int(digits[0]))
        if digits[0] != part:
            break
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def place(seed: str, bundle: str) -> float:
    """Where a device stands in the roll-out of a bundle, evenly spread: ``spread32`` of the FNV hash of
    ``seed:bundle``, over 2^32; 0 ≤ place < 1."""
    return spread32(item_hash(f"{seed}:{bundle}")) / 2**32


def choose(offers: Sequence[Offer], seed: str, app: str) -> Offer | None:
    """The first offer that admits the device, or None."""
    admits = (o for o in offers if version(app) >= version(o.min_app) and place(seed, o.id) < o.share)
    return next(admits, None)
