"""Tables in pieces are what one call of msgspec makes of them, faults included."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from online import tables
from online.tables import PIECE, Names, Rows, numbered, read_catalogue, read_profiles
from schemas.release import Catalogue, Profiles

LENGTHS = [0, 1, 31, 32, 255, 256, 65_535, 65_536]
"""Where msgpack's tag of a string changes."""
COUNTS = [0, 1, 15, 16, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 65_536]
NUMBERS = [
    *(2**bits - less for bits in (0, 7, 8, 16, 32, 63) for less in (0, 1)),
    *(-(2**bits) - more for bits in (0, 5, 7, 15, 31) for more in (0, 1)),
]
texts = st.lists(st.text() | st.text(min_size=30, max_size=40), max_size=30)
catalogues = st.builds(Catalogue, texts, texts, texts)
profiles = st.builds(Profiles, texts, st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1), max_size=30))


@pytest.fixture(scope="module", params=[3, PIECE], autouse=True)
def piece(request):
    """Few rows at a time, or as many as in earnest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "PIECE", request.param)
        yield


def outcome(read, raw):
    """What it makes, or says."""
    try:
        return read(raw)
    except msgspec.DecodeError as error:
        return str(error)


def plain(kind):
    return lambda raw: msgspec.msgpack.decode(raw, type=kind)


def as_profiles(raw):
    known = read_profiles(raw)
    return Profiles(known.buckets, dict(known.users))


@given(catalogues)
def test_a_catalogue(catalogue):
    found = read_catalogue(msgspec.msgpack.encode(catalogue))
    assert found == catalogue
    assert isinstance(found.titles, Rows), "in pieces, not by the one call"


@given(profiles)
def test_profiles(given_):
    found = read_profiles(msgspec.msgpack.encode(given_))
    assert (found.buckets, dict(found.users)) == (given_.buckets, given_.users)
    assert isinstance(found.buckets, Rows), "in pieces, not by the one call"


@pytest.mark.parametrize("count", COUNTS)
def test_every_way_to_write_a_count(count):
    names = [f"{number}" for number in range(count)]
    found = read_catalogue(msgspec.msgpack.encode(Catalogue(names, names, [])))
    assert found == Catalogue(names, names, [])
    assert isinstance(found.titles, Rows)
    users = {name: len(name) for name in names}
    known = read_profiles(msgspec.msgpack.encode(Profiles([], users)))
    assert dict(known.users) == users
    assert isinstance(known.buckets, Rows)


def test_every_way_to_write_a_string_or_a_number():
    names = ["é" * (length // 2) + "x" * (length % 2) for length in LENGTHS]
    users = dict(zip(map(str, NUMBERS), NUMBERS, strict=True))
    assert read_catalogue(msgspec.msgpack.encode(Catalogue(names, [], []))).item_ids == names
    known = read_profiles(msgspec.msgpack.encode(Profiles(names, users)))
    assert dict(known.users) == users
    assert isinstance(known.buckets, Rows)


@given(st.data())
def test_what_is_damaged_is_refused_in_the_same_words(data):
    """Cut short, one byte changed, something behind it; what is still a table is the same table."""
    for made, read, kind in ((catalogues, read_catalogue, Catalogue), (profiles, as_profiles, Profiles)):
        raw = bytearray(msgspec.msgpack.encode(data.draw(made)))
        place = data.draw(st.integers(0, len(raw) - 1))
        cut = bytes(raw[:place])
        longer = bytes(raw) + data.draw(st.binary(min_size=1, max_size=3))
        raw[place] = data.draw(st.integers(0, 255))
        for wrong in (cut, longer, bytes(raw)):
            assert outcome(read, wrong) == outcome(plain(kind), wrong)


@pytest.mark.parametrize(
    "other",
    [
        {"titles": ["b"], "item_ids": ["a"], "categories": []},
        {"item_ids": ["a"], "titles": ["b"], "categories": [], "later": {"a": [1.5, None]}},
        {"item_ids": ["a"], "titles": ["b"]},
        {"item_ids": ["a"], "titles": [1], "categories": []},
        {"item_ids": ["a"], "titles": [b"b"], "categories": []},
        {"item_ids": "a", "titles": ["b"], "categories": []},
        ["a"],
        None,
    ],
)
def test_another_shape_is_read_or_refused_as_before(other):
    raw = msgspec.msgpack.encode(other)
    assert outcome(read_catalogue, raw) == outcome(plain(Catalogue), raw)


@given(st.lists(st.tuples(st.text(max_size=3), st.integers()), max_size=60), st.integers(0, 10**5), st.text(max_size=3))
def test_names_are_a_dict(pairs, count, asked):
    names, expected = Names(pairs, count), dict(pairs)
    assert dict(names) == expected
    assert len(names) == len(expected)
    for name in (asked, *expected):
        assert (name in names) is (name in expected)
        assert names.get(name) == expected.get(name)
        assert names.get(name, 7) == expected.get(name, 7)
    if asked not in expected:
        with pytest.raises(KeyError):
            names[asked]


def test_of_equal_names_the_last_is_numbered():
    assert dict(numbered(["a", "b", "a"])) == {"a": 2, "b": 1}
