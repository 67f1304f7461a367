"""``GET /v1/items?ids=…&ids=…``: titles and categories of items, as the releases that serve know them."""

from __future__ import annotations

from urllib.parse import parse_qsl

import msgspec

from online.deadline import Deadline
from online.graph import Array
from online.http import Answer, Receive, RefusedError, Scope, answer, answer_codec
from online.release import Release
from online.releases import Loaded, Releases

MAX_IDS = 500
MAX_QUERY_BYTES = 32 * 1024


class ItemCard(msgspec.Struct, frozen=True):
    """What is shown of an item."""

    title: str
    category: str
    withdrawn: bool = False  # it is recalled no longer


class Items(msgspec.Struct, frozen=True):
    """The answer. An id that no loaded release has is left out; the current one's word on an item goes first."""

    release: str  # the current one; empty when none is loaded
    items: dict[str, ItemCard]


class ItemRoute:
    """Answers it."""

    def __init__(self, releases: Releases) -> None:
        self._releases = releases

    async def __call__(self, scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
        """The handler."""
        ids = asked_ids(scope["query_string"])
        return answer(cards(self._releases.loaded, ids), answer_codec(scope))


def asked_ids(query: bytes) -> list[str]:
    """Each value of ``ids``; one per parameter, for an id may hold a comma. Raises RefusedError."""
    mend = f"As in /v1/items?ids=1&ids=2, percent-encoded, {MAX_IDS} at most."
    if len(query) > MAX_QUERY_BYTES:
        raise RefusedError(414, "the query is too long", where="ids", mend=f"{MAX_QUERY_BYTES // 1024} KB at most.")
    try:
        pairs = parse_qsl(query.decode("ascii"), errors="strict", max_num_fields=MAX_IDS)
    except (UnicodeDecodeError, ValueError):
        raise RefusedError(422, "not ids that can be read", where="ids", mend=mend) from None
    ids = [value for name, value in pairs if name == "ids"]
    if not ids:
        raise RefusedError(422, "no ids are named", where="ids", mend=mend)
    return ids


def cards(loaded: Loaded, ids: list[str]) -> Items:
    """What the loaded releases say: a canary's answers may hold items that the current one does not know."""
    found: dict[str, ItemCard] = {}
    for release in reversed(loaded.all if loaded.current else []):
        found |= _cards(release, ids, loaded.gone.get(release.id))
    return Items(loaded.current.id if loaded.current else "", found)


def _cards(release: Release, ids: list[str], gone: Array | None) -> dict[str, ItemCard]:
    numbers = {item_id: release.item_numbers[item_id] for item_id in ids if item_id in release.item_numbers}
    catalogue, categories = release.catalogue, release.arrays["item_category"]
    return {
        item_id: ItemCard(
            catalogue.titles[number],
            catalogue.categories[int(categories[number])],
            number >= release.num_live or (gone is not None and bool(gone[number])),
        )
        for item_id, number in numbers.items()
    }
