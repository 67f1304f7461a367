"""The code table: every item, no other, whatever the shard; the hash that three languages share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.bundle import BundleError
from edge.code_table import HEADER, CodeTable, Shard, item_hash, make_shards, spread32, tail_shard
from edge.names import BundleReason
from schemas.errors import DataError

ids = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), unique=True, max_size=40)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_the_hash_is_fnv_1a(text: str, expected: int) -> None:
    """Values from the reference implementation's test suite."""
    assert item_hash(text) == expected


@given(ids, st.integers(2, 400), st.integers(1, 4), st.integers(40, 300))
def test_every_item_is_found_and_no_other(given_ids: list[str], num_codes: int, levels: int, shard_bytes: int) -> None:
    random = np.random.default_rng(len(given_ids))
    codes = random.integers(0, num_codes, (len(given_ids), levels))
    popular = random.permutation(len(given_ids)).tolist()
    raw = make_shards(given_ids, codes, popular, num_codes, shard_bytes)
    table = CodeTable([Shard(shard, levels, "test") for shard in raw])
    for number, item_id in enumerate(given_ids):
        found = table(item_id)
        assert found is not None
        assert found.tolist() == codes[number].tolist()
    assert all(table(f"{item_id}?") is None for item_id in given_ids if f"{item_id}?" not in given_ids)


def test_the_first_shard_holds_the_most_popular_and_is_bounded() -> None:
    names = [f"i{number}" for number in range(1000)]
    codes = np.zeros((1000, 3), np.int64)
    raw = make_shards(names, codes, list(range(1000)), 256, 1024)
    head = Shard(raw[0], 3, "head")
    assert len(raw[0]) <= 1024
    assert all(head.find(item_hash(name)) is not None for name in names[: len(head)])
    sizes = [len(Shard(shard, 3, "tail")) for shard in raw[1:]]
    assert sum(sizes) + len(head) == 1000
    assert max(sizes) < 2 * 1000 / len(raw), "the tail is dealt out evenly"


def test_similar_ids_are_spread() -> None:
    dealt = np.bincount([spread32(item_hash(f"item-{n:05}")) % 16 for n in range(8000)], minlength=16)
    assert dealt.min() > 400
    assert tail_shard(5, 0) == 0


def test_an_empty_catalogue_is_one_empty_shard() -> None:
    raw = make_shards([], np.zeros((0, 3), np.int64), [], 8, 100)
    assert [len(Shard(shard, 3, "x")) for shard in raw] == [0]


def test_two_items_of_one_hash_are_refused(monkeypatch) -> None:
    monkeypatch.setattr("edge.code_table.item_hash", len)
    with pytest.raises(DataError, match="two items of one hash") as caught:
        make_shards(["aa", "b", "cc"], np.zeros((3, 2), np.int64), [0, 1, 2], 8, 100)
    assert caught.value.value == ("aa", "cc")


@pytest.mark.parametrize("cut", [0, 5, HEADER.size, 40])
def test_a_shard_cut_short_is_corrupt(cut: int) -> None:
    raw = make_shards(["a", "b"], np.ones((2, 3), np.int64), [0, 1], 8, 100)[0]
    with pytest.raises(BundleError) as caught:
        Shard(raw[:cut] if cut < len(raw) else raw + b"x", 3, "x")
    assert caught.value.reason is BundleReason.CORRUPT
    with pytest.raises(BundleError):
        Shard(raw, 4, "x")
