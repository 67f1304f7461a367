"""The registry on SQLite and PostgreSQL: canaries, removal, builds, plans; a server that goes away."""

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import event, text

from schemas.errors import ReleaseError, StoreError
from schemas.registry import Database, Registry, ReleaseRow, Status
from schemas.registry.builds import Builds
from schemas.registry.leases import take
from schemas.registry.plans import Plans


def row(name: str, made_at: int = 0) -> ReleaseRow:
    return ReleaseRow(name, f"/r/{name}", f"in-{name}", {"recall_at_50": 0.2}, Status.FUTURE, made_at)


@pytest.fixture
def registry(url: str) -> Registry:
    one = Registry(url)
    for number, name in enumerate("abc"):
        one.publish(row(name, number), why="test")
    return one


def test_publish_promote_rollback(registry: Registry):
    assert not registry.publish(row("a"), why="again")
    assert registry.promote("a", why="go")
    assert not registry.promote("a", why="go")
    assert registry.promote("b", why="go")
    assert registry.rollback(why="worse") == "a"
    assert registry.pointer().kept == {"a", "b"}
    assert {r.id: r.status for r in registry.all()} == {
        "a": Status.CURRENT,
        "b": Status.BACKUP,
        "c": Status.FUTURE,
    }


def test_a_canary_is_tried_then_promoted_or_ended(registry: Registry):
    with pytest.raises(ReleaseError, match="nothing is current yet"):
        registry.canary("b", 0.1, why="")
    registry.promote("a", why="")
    assert registry.canary("b", 0.1, why="try")
    assert not registry.canary("b", 0.1, why="try")
    assert registry.canary("b", 0.5, why="more")
    pointer = registry.pointer()
    assert (pointer.canary, pointer.canary_share, pointer.current) == ("b", 0.5, "a")
    for refused in (lambda: registry.canary("c", 0.1, why=""), lambda: registry.promote("c", why="")):
        with pytest.raises(ReleaseError, match=r"b is tried by 0\.5"):
            refused()
    assert registry.end_canary(why="worse") == "b"
    assert registry.end_canary(why="worse") is None
    registry.canary("b", 0.1, why="again")
    assert registry.promote("b", why="good")
    assert registry.pointer().canary is None
    assert [a["act"] for a in registry.history()][:3] == ["promote", "canary", "end canary"]


def test_what_grew_takes_the_place_of_its_parent_and_nothing_else_moves(registry: Registry):
    registry.promote("a", why="")
    registry.publish(row("a2"), why="items")
    assert registry.succeed("a2", "a", why="items")
    assert registry.pointer().backup is None
    registry.promote("b", why="")
    registry.canary("c", 0.1, why="")
    for grown, parent, done in (("b2", "b", True), ("b2", "b", False), ("b3", "b", False), ("b3", "b2", True)):
        registry.publish(row(grown), why="items")
        assert registry.succeed(grown, parent, why="items") is done
    pointer = registry.pointer()
    assert (pointer.current, pointer.backup, pointer.canary, pointer.canary_share) == ("b3", "a2", "c", 0.1)
    assert registry.get("b").status is Status.RETIRED
    assert registry.get("b3").status is Status.CURRENT
    assert registry.rollback(why="worse") == "a2"
    registry.mark_bad("b3", why="worse")
    with pytest.raises(ReleaseError, match="marked bad"):
        registry.succeed("b3", "a2", why="items")


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(registry: Registry, share: float):
    registry.promote("a", why="")
    with pytest.raises(ReleaseError, match="above 0"):
        registry.canary("b", share, why="")


def test_a_bad_canary_ends_and_is_not_tried_again(registry: Registry):
    registry.promote("a", why="")
    registry.canary("b", 0.1, why="")
    registry.mark_bad("b", why="NaN")
    assert registry.pointer().canary is None
    with pytest.raises(ReleaseError, match="bad"):
        registry.canary("b", 0.1, why="")


def test_what_serves_is_never_removed_and_a_bad_one_stays_bad(registry: Registry):
    registry.promote("a", why="")
    registry.promote("b", why="")
    registry.canary("c", 0.1, why="")
    for name in "abc":
        with pytest.raises(ReleaseError, match="serves"):
            registry.remove(name, why="")
    registry.mark_bad("c", why="worse")
    assert not registry.remove("c", why="old")
    registry.publish(row("c"), why="built again")
    assert registry.get("c").status is Status.BAD
    registry.publish(row("d"), why="")
    assert registry.remove("d", why="old")
    with pytest.raises(ReleaseError, match="no such release"):
        registry.get("d")


def test_the_usual_cost_is_that_of_this_data_set_or_of_any(url: str):
    builds = Builds(Database(url))
    assert builds.usual("shop", "train") is None
    for seconds in (1.0, 100.0, 3.0):
        number = builds.begin("other", "train", "h", "never ran")
        builds.end(number, seconds=seconds, cpu_s=2 * seconds, num_bytes=10)
    failed = builds.begin("shop", "train", "h", "never ran")
    builds.end(failed, seconds=50, cpu_s=50, num_bytes=0, failed=True)
    usual = builds.usual("shop", "train")
    assert usual is not None
    assert (usual.seconds, usual.cpu_s, usual.num_builds, usual.of_data) == (3.0, 6.0, 3, False)
    builds.end(builds.begin("shop", "train", "h", ""), seconds=7, cpu_s=7, num_bytes=1)
    usual = builds.usual("shop", "train")
    assert usual is not None
    assert (usual.seconds, usual.of_data) == (7.0, True)
    assert [b.state for b in builds.last(2)] == ["done", "failed"]


def test_a_check_keeps_when_it_was_made(url: str):
    builds = Builds(Database(url))
    builds.confirm("semantic_index", "shop", "h1", made=True)
    first = builds.freshness()["semantic_index"]
    builds.confirm("semantic_index", "shop", "h1", made=False)
    second = builds.freshness()["semantic_index"]
    assert second.made_at == first.made_at
    assert second.checked_at >= first.checked_at


def test_plans_and_forecasts(url: str):
    database = Database(url)
    plans = Plans(database)
    assert plans.last() is None
    assert plans.last_forecast() is None
    lease = take(database, "plan:shop", about="")
    plans.apply("p1", "d1", "{}", "shop", why="first", lease=lease)
    plans.apply("p2", "d2", "{}", "shop", why="second", lease=lease)
    last, first = plans.last(), plans.by_id("p1")
    assert last is not None and first is not None
    assert (last.digest, first.why) == ("d2", "first")
    plans.forecast({"hit_rate": 0.5})
    forecast = plans.last_forecast()
    assert forecast is not None
    assert forecast[1] == {"hit_rate": 0.5}


def test_two_that_open_a_new_registry_at_once(url: str):
    opened: list[object] = []
    barrier = threading.Barrier(4)

    def run():
        barrier.wait()
        try:
            opened.append(Registry(url).current())
        except StoreError as error:
            opened.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [None] * 4


def test_a_new_registry_waits_for_the_other_that_opens_it_too(tmp_path: Path):
    """SQLite refuses the switch to a write-ahead log at once while another one is at the file, whatever its timeout."""
    path, opened = tmp_path / "registry.db", list[object]()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # as it does while it switches
    with pytest.raises(sqlite3.OperationalError, match="locked"):  # what is waited for
        sqlite3.connect(path, timeout=5).execute("PRAGMA journal_mode=WAL")
    thread = threading.Thread(target=lambda: opened.append(Registry(f"sqlite:///{path}").current()))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    other.execute("ROLLBACK")
    thread.join()
    assert opened == [None]
    other.close()


def test_an_older_registry_is_refused_with_the_mend_and_a_newer_one_is_used(url: str):
    database = Database(url)
    for found in ("0001", "9999"):
        with database.engine.begin() as db:
            db.execute(text(f"UPDATE alembic_version SET version_num = '{found}'"))
        if found == "0001":
            with pytest.raises(StoreError, match=r"revision 0001.*registry upgrade"):
                Registry(url)
        else:
            assert Registry(url).current() is None


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6, 7, "commit"])
def test_a_server_lost_during_a_promotion_leaves_it_whole_or_not_done(postgres, at: int | str):
    """The session is ended by the server before the n-th statement of the promotion, or before its commit."""
    url = postgres.database()
    registry = Registry(url)
    for name in "ab":
        registry.publish(row(name), why="")
    registry.promote("a", why="")
    other, done = Registry(url), []

    def cut(db, *_rest):
        done.append("a statement")
        if at in ("commit", len(done)):
            pid = db.connection.dbapi_connection.info.backend_pid
            with other.engine.begin() as admin:
                admin.execute(text(f"SELECT pg_terminate_backend({pid}, 5000)"))

    moment = "commit" if at == "commit" else "before_cursor_execute"
    event.listen(registry.engine, moment, cut)
    with pytest.raises(StoreError, match="the registry did not answer"):
        registry.promote("b", why="")
    pointer = other.pointer()
    statuses = {r.id: r.status for r in other.all()}
    promoted = [a["release"] for a in other.history() if a["act"] == "promote"]
    if pointer.current == "b":
        assert statuses == {"a": Status.BACKUP, "b": Status.CURRENT}
        assert promoted == ["b", "a"]
    else:
        assert (pointer.current, pointer.backup) == ("a", None)
        assert statuses == {"a": Status.CURRENT, "b": Status.FUTURE}
        assert promoted == ["a"]
    event.remove(registry.engine, moment, cut)
    registry.promote("b", why="again")  # the pool has found another session
    assert other.pointer().current == "b"


@pytest.mark.slow
def test_a_server_that_comes_back_is_used_again(postgres):
    registry = Registry(postgres.database())
    registry.publish(row("a"), why="")
    postgres.stop()
    try:
        with pytest.raises(StoreError, match="did not answer"):
            registry.promote("a", why="")
    finally:
        postgres.start()
    assert registry.promote("a", why="")


def test_two_who_leave_the_same_release_do_not_undo_each_other(registry: Registry):
    registry.promote("a", why="go")
    registry.promote("b", why="go")
    assert registry.rollback(why="late answers", leaving="b") == "a"
    assert registry.rollback(why="late answers", leaving="b") is None
    assert registry.pointer().current == "a"
    with pytest.raises(ReleaseError, match="no such release"):
        registry.rollback(why="typing", leaving="bb")


def test_a_rollback_that_is_refused_leaves_the_canary(registry: Registry):
    registry.promote("a", why="go")
    registry.promote("b", why="go")
    registry.canary("c", 0.1, why="try")
    registry.mark_bad("a", why="wrong prices")
    before = registry.pointer()
    with pytest.raises(ReleaseError, match="marked bad"):
        registry.rollback(why="late answers")
    assert registry.pointer() == before


@pytest.mark.parametrize("url", ["postgresql://u:sec@ret@:::/x", "postgresql://u:secret@127.0.0.1:1/x", "nothing"])
def test_an_address_that_is_none_is_refused_without_its_password(url: str):
    with pytest.raises(StoreError) as caught:
        Database(url)
    assert "sec" not in str(caught.value)
    assert caught.value.mend


def test_a_registry_that_can_not_be_read_is_told(tmp_path):
    (tmp_path / "broken.db").write_text("garbage, and no database at all")
    for name in ("broken.db", "no/folder.db"):
        with pytest.raises(StoreError, match="can't be read"):
            Database(f"sqlite:///{tmp_path / name}", upgrading=True).found_revision()
