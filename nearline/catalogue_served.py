"""Waiting until the look-up service answers with what was sent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import msgspec

from schemas.errors import DataError, StoreError
from schemas.item_change import Change, ItemChange

GIVE_UP_S = 360.0
LOOK_EVERY_S = 0.2
BATCH = 400
QUERY_BYTES = 8_000
"""Of one question: the service takes 32 KB, what stands before it often less."""


class _Card(msgspec.Struct):
    title: str
    withdrawn: bool = False


class _Items(msgspec.Struct):
    items: dict[str, _Card]


def check_url(url: str, where: str) -> str:
    """``url`` when it can be a service's. Raises ``DataError`` naming ``where`` it was written."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        good = good and not (parts.query or parts.fragment) and all("!" <= one <= "~" for one in url)
    except ValueError:  # a port that is no number, a bracket that is not closed
        good = False
    if not good:
        raise DataError("not a service's address", where=where, value=url, mend="As in http://127.0.0.1:8700.")
    return url.rstrip("/")


def last_words(changes: Iterable[ItemChange]) -> dict[str, ItemChange]:
    """What counts of each item: the change with the largest ``at``, of equal ones the later."""
    found: dict[str, ItemChange] = {}
    for change in changes:
        if change.item_id not in found or change.at >= found[change.item_id].at:
            found[change.item_id] = change
    return found


def wait_served(url: str, changes: Sequence[ItemChange]) -> None:
    """Return when the release that serves at ``url`` has every item as it was last changed.

    Raises:
        StoreError: not within six minutes, naming an item; or the service does not answer, or with an error.
    """
    wanted = last_words(changes)
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
    for some in batches(wanted):
        there = _ask(url, some).items
        for item_id in some:
            change, found = wanted[item_id], there.get(item_id)
            if change.change is Change.WITHDRAWN:
                as_sent = found is None or found.withdrawn
            else:
                as_sent = found is not None and not found.withdrawn and found.title == change.title
            if not as_sent:
                yield item_id


def batches(ids: Iterable[str]) -> Iterator[list[str]]:
    """``ids`` in their order, so many at a time as one question can hold."""
    some, size = list[str](), 0
    for one in ids:
        more = len(_query([one])) + 1
        if some and (len(some) == BATCH or size + more > QUERY_BYTES):
            yield some
            some, size = [], 0
        some.append(one)
        size += more
    if some:
        yield some


def _query(ids: Sequence[str]) -> str:
    return urlencode([("ids", one) for one in ids])


def _ask(url: str, ids: Sequence[str]) -> _Items:
    key = os.environ.get("BEFOREHAND_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        request = Request(f"{url}/v1/items?{_query(ids)}", headers=headers)  # noqa: S310 - the operator's own
        with urlopen(request, timeout=10) as answer:  # noqa: S310
            raw = answer.read()
    except HTTPError as error:
        mends = {401: "Set BEFOREHAND_API_KEY to its key.", 404: "Name the look-up service by --url."}
        mend = mends.get(error.code, "The change is sent; see what the service says.")
        raise StoreError("the service refuses the question", where=url, value=error.code, mend=mend) from None
    except (HTTPException, OSError, ValueError) as error:
        raise StoreError(
            f"the service does not answer: {error}", where=url, mend="Start it, or name it by --url."
        ) from None
    try:
        return msgspec.json.decode(raw, type=_Items)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(
            f"not a look-up service's answer: {error}", where=url, mend="Name the look-up service by --url."
        ) from None
