"""Changes of items: what is taken, and by which reason the rest is refused."""

import msgspec
import pytest

from schemas.errors import DataError
from schemas.event import MAX_RECORD_BYTES
from schemas.item_change import Change, ItemChange, decode_change, encode_change

AT = 1_700_000_000_000
GOOD = {"item_id": "i 1 é", "change": "added", "at": AT, "title": "Tea"}


def raw(**more):
    return msgspec.json.encode({key: value for key, value in (GOOD | more).items() if value is not None})


def test_a_change_goes_there_and_back():
    change = ItemChange(item_id="i", change=Change.CHANGED, at=AT, title="Tea", category="drinks", brand="b")
    assert decode_change(encode_change(change)) == change
    assert decode_change(raw(unknown=1)).title == "Tea"
    assert decode_change(raw(change="withdrawn", title=None)).change is Change.WITHDRAWN


@pytest.mark.parametrize(
    ("bytes_", "reason"),
    [
        (None, "null_value"),
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"\xff", "not_json"),
        (b"[" * 5000, "not_an_object"),
        (b'{"item_id":' + b"[" * 5000, "item_id"),
        (b"[]", "not_an_object"),
        (b"null", "not_an_object"),
        (raw(title=None), "title"),
        (raw(title="  "), "title"),
        (raw(title=3), "title"),
        (raw(item_id=None), "item_id"),
        (raw(item_id=""), "item_id"),
        (raw(item_id="a\nb"), "item_id"),
        (raw(change="gone"), "change"),
        (raw(at=AT // 1000), "at"),
        (raw(at=None), "at"),
        (raw(category="x" * 300), "category"),
        (raw(text="x" * MAX_RECORD_BYTES), "too_large"),
    ],
)
def test_what_is_refused(bytes_, reason):
    with pytest.raises(DataError) as refused:
        decode_change(bytes_)
    assert refused.value.value == reason
