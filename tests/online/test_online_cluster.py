"""Reads from a real cluster of three: one round trip to the user's node, a moved slot, a node that is down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import hiredis
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_cluster import RedisCluster
from online_values import Clock, long, make_state, put
from test_online_store import opened, until

from online.link import Address
from online.nodes import SLOTS, Cluster, slot
from schemas.errors import StoreError
from schemas.keys import INVALIDATION_CHANNEL, state_key
from schemas.names import Reason, State
from schemas.state import encode_state

USERS = [f"u{n}" for n in range(30)]
DOWN = (State.UNAVAILABLE, Reason.STORE_DOWN)


@pytest.fixture(scope="module")
def formed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    made = RedisCluster(Path(tmp_path_factory.mktemp("cluster")))
    try:
        made.form()
        yield made
    finally:
        made.end()


@pytest.fixture
def cluster(formed, release) -> RedisCluster:
    for node in formed.nodes:
        node.flushall()
    for user in USERS:
        put(formed.nodes[formed.node_of(user)], make_state(release, user))
    return formed


async def known(store) -> None:
    await until(lambda: all(store.nodes.of(user) is not None for user in USERS))


@pytest.mark.slow
def test_each_user_costs_one_round_trip_to_its_node(cluster, release):
    async def run():
        async with opened(cluster.url) as store:
            await known(store)
            before = cluster.commands("mget")
            found = {user: await store.find(user, long()) for user in USERS}
            return found, [b - a for a, b in zip(before, cluster.commands("mget"), strict=True)]

    found, asked = asyncio.run(run())
    assert all(found[user].pair.state == encode_state(make_state(release, user), 1) for user in USERS)
    assert asked == [sum(cluster.node_of(user) == n for user in USERS) for n in range(3)]
    assert min(asked) > 0


@pytest.mark.slow
@pytest.mark.parametrize("told_by", [0, 1, 2])
def test_a_change_is_heard_whichever_node_is_told(cluster, told_by):
    async def run():
        async with opened(cluster.url) as store:
            await known(store)
            await store.find("u1", long())
            assert (await store.find("u1", long())).cached
            cluster.nodes[told_by].publish(INVALIDATION_CHANNEL, msgspec.msgpack.encode(["u1"]))
            await until(lambda: store.cache.fresh("u1") is None)

    asyncio.run(run())


@pytest.mark.slow
def test_a_moved_slot_is_followed(cluster, release):
    moved = next(user for user in USERS if cluster.node_of(user) == 0)
    number = slot(moved)
    ids = [node.execute_command("CLUSTER", "MYID").decode() for node in cluster.nodes]

    def give_to(n: int) -> None:
        for node in cluster.nodes:
            node.execute_command("CLUSTER", "SETSLOT", number, "NODE", ids[n])

    async def run():
        async with opened(cluster.url) as store:
            await known(store)
            cluster.nodes[0].delete(state_key(moved))
            give_to(1)
            put(cluster.nodes[1], make_state(release, moved))
            return await store.find(moved, long())

    try:
        assert asyncio.run(run()).pair.state == encode_state(make_state(release, moved), 1)
    finally:
        cluster.nodes[1].delete(state_key(moved))
        give_to(0)


@pytest.mark.slow
def test_a_node_down_costs_its_own_users_and_no_other(cluster):
    lost = {user for user in USERS if cluster.node_of(user) == 1}

    async def run():
        async with opened(cluster.url, listening=True) as store:
            await known(store)
            store.cache.live = False  # what memory holds is another test's matter
            cluster.stop(1)
            for _ in range(8):  # long enough for its circuit to open
                for user in USERS:
                    found = await store.find(user, long())
                    store.cache.live = False
                    if user in lost:
                        assert found.pair is None
                        assert found.fault in (DOWN, (State.UNAVAILABLE, Reason.CIRCUIT_OPEN))
                    else:
                        assert found.fault is None
                        assert found.pair.state is not None
                await asyncio.sleep(0.03)
            assert store.circuit_open
            cluster.revive(1)

            async def answered() -> None:
                while (await store.find(min(lost), long())).fault is not None:
                    await asyncio.sleep(0.05)

            await asyncio.wait_for(answered(), 20)

    asyncio.run(run())


@given(
    st.text(
        st.characters(min_codepoint=32, exclude_characters="\x7f", exclude_categories=["Cs"]), min_size=1, max_size=99
    )
)
def test_a_slot_is_what_the_cluster_would_say(user):
    from redis.crc import key_slot

    assert slot(user) == key_slot(state_key(user).encode())


def test_nobody_is_asked_before_the_cluster_has_said_who_has_what():
    async def run():
        async with opened("redis+cluster://127.0.0.1:9", listening=False) as store:
            return await store.find("u1", long())

    assert asyncio.run(run()).fault == DOWN


def test_a_redirect_is_read():
    nodes = Cluster(Address("redis+cluster://seed:1"), Clock())
    moved, asking = nodes.redirected(hiredis.ReplyError(f"MOVED {slot('u1')} 10.0.0.7:7001"))
    assert (moved.address.host, asking) == ("10.0.0.7", False)
    assert nodes.of("u1") is moved
    there, asking = nodes.redirected(hiredis.ReplyError(f"ASK {slot('u1')} :7002"))
    assert (there.address.host, asking) == ("seed", True)
    assert nodes.of("u1") is moved
    for other in ("CLUSTERDOWN Hash slot not served", "MOVED x y", "", "MOVED"):
        assert nodes.redirected(hiredis.ReplyError(other)) is None
    assert nodes.of("u1") is moved
    assert 0 <= slot("u1") < SLOTS


def test_a_cluster_has_one_database():
    with pytest.raises(StoreError):
        Address("redis+cluster://127.0.0.1:6379/3")
