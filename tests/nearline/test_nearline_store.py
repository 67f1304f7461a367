"""Compare-and-set at a real Redis: the newest wins in any order, from any number of writers."""

from __future__ import annotations

import threading
import time
from itertools import permutations

import msgspec
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nearline_fakes import AT, state
from redis.crc import key_slot

from nearline.store import BATCH, Forgotten, StateStore, Written, forgotten_key
from schemas.errors import DataError, StoreError
from schemas.keys import INVALIDATION_CHANNEL, candidates_key, state_key
from schemas.state import (
    Candidates,
    IntentState,
    decode_candidates,
    decode_state,
    encode_candidates,
    encode_state,
)

ODD_USERS = ["a:bc", "ab:c", "{x}", "a b", "😀", "é", "%7Bx%7D", '"', "x" * 256, "u}state"]


def stored(client: redis.Redis, user_id: str) -> IntentState:
    return decode_state(client.get(state_key(user_id)))


def test_a_state_comes_back_as_it_went(client: redis.Redis, store: StateStore) -> None:
    one = state("u", items=[5, 0, 59])
    assert store.write_states([(one, 3)]) == Written(1, 0)
    assert stored(client, "u") == one
    assert 30_000 < client.pttl(state_key("u")) <= 60_000


def test_a_state_lives_as_long_as_it_may_be_used_whenever_it_was_encoded(
    client: redis.Redis, store: StateStore
) -> None:
    now = int(time.time() * 1000)
    store.write_states([(msgspec.structs.replace(state("u"), made_at=now - 20_000), 1)])
    assert 20_000 < client.pttl(state_key("u")) <= 40_000
    assert [store.keeps(at) for at in (0, now, now - 50_000, now - 60_001)] == [True, True, True, False]


def test_candidates_come_back_as_they_went(client: redis.Redis, store: StateStore) -> None:
    one = Candidates("u", "r", 9, AT, [4, 2], [1.5, -0.25])
    assert store.write_candidates([(one, 3)]) == Written(1, 0)
    assert decode_candidates(client.get(candidates_key("u"))) == one
    assert 15_000 < client.pttl(candidates_key("u")) <= 30_000


def test_one_kind_is_never_read_as_the_other() -> None:
    with pytest.raises(DataError):
        decode_state(encode_candidates(Candidates("u", "r", 0, AT, [], []), 0))
    with pytest.raises(DataError):
        decode_candidates(encode_state(state("u"), 0))


@pytest.mark.parametrize("order", list(permutations([(AT, 5), (AT + 1, 2), (AT - 1, 9), (AT + 1, 4)])))
def test_the_newest_wins_in_every_order(
    client: redis.Redis, store: StateStore, order: tuple[tuple[int, int], ...]
) -> None:
    for watermark, sequence in order:
        store.write_states([(state("u", watermark, f"s{sequence}"), sequence)])
    assert (stored(client, "u").watermark, stored(client, "u").release) == (AT + 1, "s4")


def test_equal_time_and_sequence_overwrites(client: redis.Redis, store: StateStore) -> None:
    store.write_states([(state("u", release="old"), 7)])
    assert store.write_states([(state("u", release="new"), 7)]) == Written(1, 0)
    assert stored(client, "u").release == "new"


big = st.integers(0, 2**64 - 1)
near = st.tuples(st.sampled_from([2**32, 2**53, 2**63]), st.integers(-2, 2)).map(sum)
numbers = st.one_of(big, near)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.tuples(numbers, numbers), second=st.tuples(numbers, numbers))
def test_the_store_compares_all_64_bits(
    client: redis.Redis, store: StateStore, first: tuple[int, int], second: tuple[int, int]
) -> None:
    client.delete(state_key("u"))
    for watermark, sequence in (first, second):
        store.write_states([(state("u", watermark, str((watermark, sequence))), sequence)])
    assert stored(client, "u").release == str(max(first, second))


def test_two_writers_at_once(redis_url: str, client: redis.Redis) -> None:
    """Each writes every user with rising times of its own; the highest time of all stays."""
    start = threading.Barrier(2)

    def write(times: list[int]) -> None:
        own = StateStore(redis.Redis.from_url(redis_url), state_ttl_s=60, candidates_ttl_s=60)
        start.wait()
        for at in times:
            own.write_states([(state(f"u{n}", at, f"r{at}"), 0) for n in range(20)])

    threads = [
        threading.Thread(target=write, args=(list(range(AT + odd, AT + 200, 2))[:: (-1) ** odd],)) for odd in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {stored(client, f"u{n}").release for n in range(20)} == {f"r{AT + 199}"}


def test_a_batch_may_hold_a_user_twice(client: redis.Redis, store: StateStore) -> None:
    written = store.write_states([(state("u", AT + 1, "new"), 1), (state("u", AT, "old"), 0)])
    assert written == Written(1, 1)
    assert stored(client, "u").release == "new"


def test_more_than_one_batch(client: redis.Redis, store: StateStore) -> None:
    assert store.write_states([(state(f"u{n}"), n) for n in range(2 * BATCH + 3)]) == Written(2 * BATCH + 3, 0)
    assert client.dbsize() == 2 * BATCH + 3


def test_odd_user_ids_share_no_key(client: redis.Redis, store: StateStore) -> None:
    store.write_states([(state(user), n) for n, user in enumerate(ODD_USERS)])
    assert [stored(client, user).user_id for user in ODD_USERS] == ODD_USERS
    for user in ODD_USERS:  # one slot of a cluster holds all that one script touches
        keys = (state_key(user), candidates_key(user), forgotten_key(user))
        assert len({key_slot(key.encode()) for key in keys}) == 1


@pytest.mark.parametrize("user", ["", "a\nb", "x" * 257, "\ud800"])
def test_a_bad_user_id_is_refused(store: StateStore, user: str) -> None:
    with pytest.raises(DataError, match="user_id"):
        store.write_states([(state(user), 0)])


def test_a_damaged_value_is_overwritten(client: redis.Redis, store: StateStore) -> None:
    for damaged in (b"", b"x", b"\xff" * 30):
        client.set(state_key("u"), damaged)
        assert store.write_states([(state("u"), 0)]) == Written(1, 0)
        assert stored(client, "u") == state("u")


def test_the_server_may_lose_its_scripts(client: redis.Redis, store: StateStore) -> None:
    store.write_states([(state("u"), 0)])
    client.script_flush()
    assert store.write_states([(state("u"), 1), (state("v"), 1)]) == Written(2, 0)


def test_changed_users_are_announced_and_stale_ones_are_not(client: redis.Redis, store: StateStore) -> None:
    store.write_states([(state("old", AT + 5), 0)])
    channel = client.pubsub(ignore_subscribe_messages=True)
    channel.subscribe(INVALIDATION_CHANNEL)
    channel.get_message(timeout=20)
    store.write_states([(state("old", AT), 1), (state("new"), 2), (state("é"), 3)])
    store.forget([Forgotten("new", 9)])
    heard = [msgspec.msgpack.decode(channel.get_message(timeout=20)["data"]) for _ in range(2)]
    assert heard == [["new", "é"], ["new"]]
    channel.close()


def test_a_forgotten_user_stays_forgotten(client: redis.Redis, store: StateStore) -> None:
    store.write_states([(state("u"), 4)])
    store.write_candidates([(Candidates("u", "r", 0, AT, [1], [1.0]), 4)])
    store.forget([Forgotten("u", 5)])
    assert client.exists(state_key("u"), candidates_key("u")) == 0
    # a slow worker, or a second reading of the topic
    assert store.write_states([(state("u", AT + 10), 4)]) == Written(0, 1)
    assert store.write_candidates([(Candidates("u", "r", 0, AT + 10, [1], [1.0]), 5)]) == Written(0, 1)
    # the user comes back
    assert store.write_states([(state("u", AT - 10), 6)]) == Written(1, 0)


def test_nothing_from_before_the_time_comes_back_and_what_came_after_stays(
    client: redis.Redis, store: StateStore
) -> None:
    store.write_states([(state("u", AT), 4), (state("v", AT + 1), 4)])
    store.write_candidates([(Candidates("u", "r", 0, AT, [1], [1.0]), 4)])
    store.forget([Forgotten("u", at=AT), Forgotten("v", at=AT)])
    assert client.exists(state_key("u"), candidates_key("u")) == 0
    assert store.num_kept("u") == 0
    assert stored(client, "v").watermark == AT + 1, "what happened after it is a new beginning"
    # a replay of the events gives the old windows new offsets
    assert store.write_states([(state("u", AT), 90)]) == Written(0, 1)
    assert store.write_states([(state("u", AT + 1), 91)]) == Written(1, 0)
    # its tombstone, told late and a second time, does not take away what is newer
    for _ in range(2):
        store.forget([Forgotten("u", 90)])
        assert stored(client, "u").watermark == AT + 1
    assert store.marker("u") == Forgotten("u", 90, AT)
    assert store.marker("nobody") is None


def test_a_marker_only_ever_rises(store: StateStore) -> None:
    for sequence, at in [(5, 0), (0, AT), (3, AT - 9)]:
        store.forget([Forgotten("u", sequence, at)])
    assert store.marker("u") == Forgotten("u", 5, AT)


def test_no_redis_is_one_of_our_errors() -> None:
    gone = StateStore(redis.Redis(port=1, socket_timeout=1), state_ttl_s=1, candidates_ttl_s=1)
    for act in (
        lambda: gone.write_states([(state("u"), 0)]),
        lambda: gone.forget([Forgotten("u")]),
    ):
        with pytest.raises(StoreError, match="Redis"):
            act()
