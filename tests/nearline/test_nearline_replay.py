"""Replay: which lines are sent, who is measured, and what counts as visible."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec
import pytest
import redis
from nearline_fakes import AT, state

from nearline import replay, waiting
from nearline.replay import lines, publish, sample_users
from nearline.store import StateStore
from nearline.visibility import Watch, watching, watermarks
from nearline.waiting import wait_idle
from schemas.errors import DataError, StoreError
from schemas.event import Event, encode_event
from schemas.keys import state_key
from schemas.names import Kind
from schemas.plan import load_plan


def line(user: str, at: int = AT, number: int = 0) -> bytes:
    return encode_event(Event(event_id=f"e{number}-{at}", user_id=user, item_id="i", kind=Kind.CLICK, at=at))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join([line("a"), b"", b"{", line("b", AT + 1), line("a", 1_700_000_000), line("é", AT + 2)]))
    return path


class Sent:
    """A producer that remembers."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes, bytes]] = []

    def send(self, topic: str, value: bytes, key: bytes) -> Sent:
        self.records.append((topic, key, value))
        return self

    def add_errback(self, _act: object) -> None: ...
    def flush(self, timeout: float) -> None: ...
    def close(self, timeout: float) -> None: ...


def test_good_lines_are_sent_in_order_and_bad_ones_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = Sent()
    monkeypatch.setattr(replay, "open_producer", lambda _bootstrap: sent)
    before: list[tuple[str, int]] = []
    outcome = publish("", [file], rate=None, before_send=lambda *one: before.append(one))
    assert [(topic, key.decode()) for topic, key, _ in sent.records] == [("events", key) for key in ("a", "b", "é")]
    assert msgspec.json.decode(sent.records[1][2])["at"] == AT + 1
    assert (outcome.events, outcome.bad) == (3, 2)
    assert outcome.newest == {"a": AT, "b": AT + 1, "é": AT + 2}
    assert before == [("a", AT), ("b", AT + 1), ("é", AT + 2)]
    said = capsys.readouterr().err.replace("\n", " ")
    assert "events.jsonl:3" in said
    assert "events.jsonl:5" in said
    assert "seconds" in said


def test_the_rate_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(replay.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(replay.time, "sleep", sleep)
    for sent in range(101):
        replay._pace(0.0, sent, 50.0)
    assert sum(slept) == pytest.approx(2.0, abs=0.01)
    replay._pace(0.0, 10**6, None)
    assert sum(slept) == pytest.approx(2.0, abs=0.01)


def test_a_refused_event_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Sent):
        def add_errback(self, act) -> None:
            act(RuntimeError("not the leader"))

    monkeypatch.setattr(replay, "open_producer", lambda _bootstrap: Refusing())
    with pytest.raises(StoreError, match="not the leader"):
        publish("", [file], rate=None)


def test_the_sample_is_of_real_users_and_always_the_same(file: Path) -> None:
    assert sample_users([file], 9) == {"a", "b", "é"}
    assert sample_users([file], 2) == sample_users([file, file], 2)
    assert len(sample_users([file], 2)) == 2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl"):
        list(lines([tmp_path / "nothing.jsonl"]))


def test_watermarks_are_those_of_the_states(client: redis.Redis, store: StateStore) -> None:
    store.write_states([(state("a", AT), 1), (state("b", AT + 7), 2)])
    client.set(state_key("bad"), b"x")
    assert watermarks(client, ["a", "none", "bad", "b"]) == {"a": AT, "b": AT + 7}


def test_an_event_is_visible_when_the_watermark_reaches_it(client: redis.Redis, store: StateStore) -> None:
    now = [0.0]
    watch = Watch(client, {"u"}, clock=lambda: now[0])
    watch.sent("u", AT)
    watch.sent("u", AT + 5)
    watch.sent("other", AT)
    now[0] = 2.0
    store.write_states([(state("u", AT + 2), 1)])
    watch.announced(["u", "other"])
    assert (watch.freshness_ms, watch.unseen) == ([2000.0], 1)
    now[0] = 3.0
    store.write_states([(state("u", AT + 5), 2)])
    watch.announced(["other"])
    assert watch.unseen == 1
    watch.look()
    assert (watch.freshness_ms, watch.unseen) == ([2000.0, 3000.0], 0)


def test_events_that_can_say_nothing_are_not_measured(client: redis.Redis, store: StateStore) -> None:
    store.write_states([(state("u", AT), 1)])
    watch = Watch(client, {"u", "v"}, clock=lambda: 0.0)
    for at in (AT - 1, AT, AT + 3, AT + 3, AT + 1):  # seen before; seen before; new; same time; late
        watch.sent("u", at)
    assert watch.unseen == 1


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("STILL_AT_MOST_S", 0.3), ("LOOK_EVERY_S", 0.02)):
        monkeypatch.setattr(waiting, name, value)


@pytest.mark.usefixtures("waits")
def test_the_wait_ends_when_every_watermark_is_reached(client: redis.Redis, store: StateStore) -> None:
    store.write_states([(state("u", AT), 1)])
    watch = Watch(client, ())
    later = threading.Timer(0.1, lambda: store.write_states([(state("v", AT + 3), 2)]))
    later.start()
    far_ahead = int(time.time() * 1000) + 86_400_000  # a dead letter by the plan
    assert wait_idle({"u": AT - 1, "v": AT + 3, "w": far_ahead}, watch, load_plan()) >= 0.1
    later.join()


@pytest.mark.usefixtures("waits")
def test_the_wait_names_who_stays_behind(
    client: redis.Redis, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "STUCK_S", 0.3)
    store.write_states([(state("u", AT), 1)])
    with pytest.raises(StoreError, match=r"1 users.*'late'"):
        wait_idle({"u": AT, "late": AT}, Watch(client, ()), load_plan())


@pytest.mark.usefixtures("waits")
def test_other_users_do_not_keep_the_wait_going(client: redis.Redis, store: StateStore) -> None:
    store.write_states([(state("u", AT), 1)])
    watch = Watch(client, ())
    watch.changed_at = time.monotonic() + 1_000_000
    assert wait_idle({"u": AT}, watch, load_plan()) < 60


def test_announcements_are_heard(redis_url: str, client: redis.Redis, store: StateStore) -> None:
    with watching(redis_url, {"u"}) as watch:
        watch.sent("u", AT)
        store.write_states([(state("u", AT), 1)])
        for _ in range(100):
            if watch.unseen:
                time.sleep(0.05)
        assert (watch.unseen, len(watch.freshness_ms)) == (0, 1)
