"""Waiting until the look-up service answers with what was sent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import msgspec

from schemas.errors import StoreError
from schemas.item_change import Change, ItemChange

GIVE_UP_S = 360.0
LOOK_EVERY_S = 0.2
BATCH = 400


class _Card(msgspec.Struct):
    title: str
    withdrawn: bool = False


class _Items(msgspec.Struct):
    items: dict[str, _Card]


def wait_served(url: str, changes: Sequence[ItemChange]) -> None:
    """Return when the release that serves at ``url`` has every item as it was last changed.

    Raises:
        StoreError: not within six minutes, naming an item; or the service does not answer.
    """
    wanted = {change.item_id: change for change in changes}
    give_up_at = time.monotonic() + GIVE_UP_S
    while True:
        late = next(_late(url, wanted), None)
        if late is None:
            return
        if time.monotonic() > give_up_at:
            raise StoreError(
                "it does not serve an item as it was changed",
                where=url,
                value=late,
                mend="See that `catalogue follow` runs, and what is in the dead-letter topic.",
            )
        time.sleep(LOOK_EVERY_S)


def _late(url: str, wanted: Mapping[str, ItemChange]) -> Iterator[str]:
    """The items that are not served as they were changed."""
    ids = list(wanted)
    for start in range(0, len(ids), BATCH):
        some = ids[start : start + BATCH]
        there = _ask(f"{url.rstrip('/')}/v1/items?{urlencode([('ids', one) for one in some])}").items
        for item_id in some:
            change, found = wanted[item_id], there.get(item_id)
            if change.change is Change.WITHDRAWN:
                as_sent = found is None or found.withdrawn
            else:
                as_sent = found is not None and not found.withdrawn and found.title == change.title
            if not as_sent:
                yield item_id


def _ask(url: str) -> _Items:
    key = os.environ.get("BEFOREHAND_API_KEY")
    request = Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})  # noqa: S310 - the operator's own
    try:
        with urlopen(request, timeout=10) as answer:  # noqa: S310
            return msgspec.json.decode(answer.read(), type=_Items)
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise StoreError(
            f"the service does not answer: {error}", where=url, mend="Start it, or name it by --url."
        ) from None
