"""Leases: one holder, a dead one is followed, a follower's predecessor can do nothing more."""

import subprocess
import sys
import threading
import time

import pytest

from schemas.errors import StoreError
from schemas.registry import Database, Registry, ReleaseRow, Status
from schemas.registry.leases import LeaseHeldError, LeaseLostError, all_held, check, give_back, held, renew, take

ELSEWHERE = "ann@elsewhere:1"


@pytest.fixture
def database(url: str) -> Database:
    return Database(url)


def test_one_holder_at_a_time_and_the_second_is_told_who(database: Database):
    first = take(database, "build:shop", about="the daily build", who=ELSEWHERE)
    with pytest.raises(LeaseHeldError, match=r"ann@elsewhere:1 holds it: the daily build") as caught:
        take(database, "build:shop", about="by hand")
    assert caught.value.lease == first
    other = take(database, "build:other", about="another name")
    assert [lease.name for lease in all_held(database)] == ["build:other", "build:shop"]
    give_back(database, first)
    second = take(database, "build:shop", about="by hand")
    assert second.token == first.token + 1
    give_back(database, other)


def test_of_many_at_once_one_gets_it(database: Database):
    got, refused = [], []
    barrier = threading.Barrier(8)

    def run(number: int):
        barrier.wait()
        try:
            got.append(take(database, "x", about="", who=f"b{number}@elsewhere:1"))
        except LeaseHeldError as error:
            refused.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 7)
    assert all(error.lease.holder == got[0].holder for error in refused)


def test_one_that_ended_is_followed_and_fenced(database: Database):
    old = take(database, "x", about="", who=ELSEWHERE, for_s=0.0)
    new = take(database, "x", about="", who="bob@other:2")
    assert new.token == old.token + 1
    for late in (lambda: renew(database, old), lambda: _checked(database, old)):
        with pytest.raises(LeaseLostError, match="bob@other:2 holds it now"):
            late()
    give_back(database, old)  # not its own any more: the new holder keeps it
    _checked(database, new)


def _checked(database: Database, lease):
    with database.write() as db:
        check(database, db, lease)


def test_a_holder_that_was_followed_can_promote_nothing(url: str):
    registry = Registry(url)
    registry.publish(ReleaseRow("a", "/r/a", "in", {}, Status.FUTURE, 1), why="")
    old = take(registry.database, "promote", about="", who=ELSEWHERE, for_s=0.0)
    take(registry.database, "promote", about="", who="bob@other:2")
    with pytest.raises(LeaseLostError):
        registry.promote("a", why="late", lease=old)
    assert registry.current() is None
    assert [act["act"] for act in registry.history()] == ["publish"]


def test_a_dead_process_of_this_host_is_followed_at_once(database: Database):
    code = (
        "import sys; from schemas.registry import Database; from schemas.registry.leases import take; "
        "take(Database(sys.argv[1]), 'x', about='killed', for_s=3600)"
    )
    url = database.engine.url.render_as_string(hide_password=False)
    subprocess.run([sys.executable, "-c", code, url], check=True)
    assert all_held(database)[0].about == "killed"
    take(database, "x", about="after")
    assert all_held(database)[0].about == "after"


def test_it_is_renewed_while_it_is_held_and_given_back_after(database: Database):
    with held(database, "x", about="", for_s=6.0) as (lease, before):
        assert before is None
        ends = time.monotonic() + 60
        while all_held(database)[0].expires_at <= lease.expires_at:
            assert time.monotonic() < ends, "nobody renews it"
            time.sleep(0.1)
        _checked(database, lease)
    assert all_held(database) == []


def test_one_that_waits_learns_for_whom(database: Database):
    first = take(database, "x", about="the first build", who=ELSEWHERE, for_s=3.0)
    with held(database, "x", about="the second", wait_s=30) as (lease, before):
        assert before == first
        assert lease.token > first.token
    take(database, "x", about="", who=ELSEWHERE)
    with pytest.raises(LeaseHeldError), held(database, "x", about="", wait_s=0):
        pass


def test_a_registry_that_is_gone_is_told_with_its_mend(tmp_path):
    with pytest.raises(StoreError, match="BEFOREHAND_REGISTRY"):
        Database(f"sqlite:///{tmp_path}/no/such/folder/registry.db")
    with pytest.raises(StoreError, match="BEFOREHAND_REGISTRY"):
        Database("nonsense")
