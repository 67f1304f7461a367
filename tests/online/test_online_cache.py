"""The cache: bounded in bytes, and never older than the last word about a user."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from online.cache import LIFETIME_S, OVERHEAD_BYTES, Cache, Pair

PAIR = Pair(b"state", None)


@pytest.fixture
def cache(clock):
    cache = Cache(100_000, clock)
    cache.live = True
    return cache


def read(cache: Cache, user_id: str, pair: Pair | None = PAIR) -> None:
    cache.begin_read(user_id)
    cache.end_read(user_id, pair)


def test_what_was_read_is_found_until_it_changes(cache):
    read(cache, "u1")
    read(cache, "u2", Pair(None, None))
    assert cache.fresh("u1") == PAIR
    assert cache.fresh("u2") == Pair(None, None), "that there is nothing is worth knowing too"
    cache.drop("u1")
    assert cache.fresh("u1") is None
    assert cache.fresh("u2") is not None


def test_a_read_under_way_when_the_user_changed_is_not_kept(cache):
    cache.begin_read("u1")
    cache.begin_read("u1")
    cache.drop("u1")
    cache.end_read("u1", PAIR)
    cache.end_read("u1", PAIR)
    assert cache.fresh("u1") is None
    read(cache, "u1")
    assert cache.fresh("u1") == PAIR, "the next read is kept again"


def test_a_read_under_way_when_all_was_cleared_is_not_kept(cache):
    cache.begin_read("u1")
    cache.clear()
    cache.end_read("u1", PAIR)
    assert len(cache) == 0


def test_without_the_subscription_nothing_is_fresh_or_kept(cache):
    read(cache, "u1")
    cache.live = False
    read(cache, "u2")
    assert cache.fresh("u1") is None
    assert cache.last_resort("u1") == PAIR
    assert cache.last_resort("u2") is None


def test_an_entry_lives_for_a_minute(cache, clock):
    read(cache, "u1")
    clock.now += LIFETIME_S + 1
    assert cache.fresh("u1") is None


def test_a_failed_read_keeps_nothing(cache):
    read(cache, "u1", None)
    assert cache.fresh("u1") is None
    assert not cache._reading


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 400), st.booleans()), max_size=60))
def test_bytes_stay_within_the_bound_and_the_count_is_exact(steps):
    cache = Cache(4 * OVERHEAD_BYTES)
    cache.live = True
    for user_id, size, dropped in steps:
        if dropped:
            cache.drop(user_id)
        else:
            read(cache, user_id, Pair(bytes(size), None))
        held = sum(OVERHEAD_BYTES + 4 + len(entry[0].state) for entry in cache._entries.values())
        assert cache.num_bytes == held <= 4 * OVERHEAD_BYTES


def test_the_least_recently_used_goes_first():
    cache = Cache(2 * OVERHEAD_BYTES + 100)
    cache.live = True
    read(cache, "a")
    read(cache, "b")
    cache.fresh("a")
    read(cache, "c")
    assert cache.fresh("a") is not None
    assert cache.fresh("b") is None
