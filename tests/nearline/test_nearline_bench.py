"""What the bench sends, and how it reckons; the bench itself runs in ``tests/chain/test_chain_bench_stream.py``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

import pytest

from nearline.bench.catchup import Point, rate
from nearline.bench.stand import Meter, cpu_s
from nearline.bench.traffic import START_MS, Log
from nearline.encode import KINDS
from schemas.errors import DataError
from schemas.event import decode_event

ITEMS = [f"i{number}" for number in range(40)]


@pytest.fixture(scope="module")
def log() -> Log:
    return Log.made_up(ITEMS)


def test_every_user_has_one_old_event(log: Log) -> None:
    sent = list(log.history(1_000))
    assert len({one.user_id for one in sent}) == 1_000
    assert {one.user_id for one in sent} == {log.user(number) for number in range(1_000)}
    assert all(decode_event(one.raw).at == one.at < START_MS for one in sent)
    assert len({decode_event(one.raw).event_id for one in sent}) == 1_000


def test_the_replay_is_whole_baskets_of_these_users_in_order_of_time(log: Log) -> None:
    sent = list(log.replay(1_000, 5_000, seed=1))
    events = [decode_event(one.raw) for one in sent]
    assert len(sent) == 5_000
    assert {one.user_id for one in sent} <= {log.user(number) for number in range(1_000)}
    assert all(a.at < b.at for a, b in pairwise(events))
    assert {event.kind for event in events} <= set(KINDS)
    assert len({event.event_id for event in events}) == 5_000
    originals = {event.event_id: basket for basket in log.baskets for event in basket}
    place = 0
    while place < len(events):
        basket = originals[events[place].event_id.partition("~")[0]]
        mine = events[place : place + len(basket)]
        assert [event.item_id for event in mine] == [event.item_id for event in basket][: len(mine)]
        assert len({event.user_id for event in mine}) == 1
        place += len(mine)


def test_no_two_phases_send_the_same_and_a_later_one_is_newer(log: Log) -> None:
    first, second = ([decode_event(one.raw) for one in log.replay(500, 2_000, seed=seed)] for seed in (1, 2))
    assert not {event.event_id for event in first} & {event.event_id for event in second}
    assert max(event.at for event in first) < min(event.at for event in second)
    again = [decode_event(one.raw) for one in log.replay(500, 2_000, seed=1)]
    assert again == first


def test_replicas_share_the_load(log: Log) -> None:
    users = Counter(one.user_id for one in log.replay(1_000, 50_000, seed=3))
    assert len(users) > 800
    assert users.most_common(1)[0][1] < 1_000


def test_a_log_without_events_is_refused() -> None:
    with pytest.raises(DataError, match="no event"):
        Log([])


def test_the_rate_leaves_the_warm_up_out_where_it_can() -> None:
    points = [Point(0, 10.0, 0), Point(400, 30.0, 1), Point(600, 32.0, 2), Point(1_000, 36.0, 3)]
    found = rate(points, warm_up=500)
    assert (found["events_per_cpu_s"], found["events"], found["warm_up_excluded"]) == (100, 400, True)
    assert (found["warm_up_events"], found["warm_up_cpu_s"], found["all_events_per_cpu_s"]) == (600, 22.0, 38)
    late = rate([points[0], Point(760, 20.0, 2), points[-1]], warm_up=500)  # what is left is little
    assert (late["events_per_cpu_s"], late["warm_up_excluded"]) == (38, False)
    whole = rate([points[0], points[-1]], warm_up=500)
    assert (whole["events_per_cpu_s"], whole["warm_up_excluded"], whole["warm_up_events"]) == (38, False, 0)


def test_the_cpu_of_a_session_counts_its_children_those_that_ended_too() -> None:
    burn = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\n"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint(flush=True)\n{burn}input()"
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, start_new_session=True)
    meter = Meter([child.pid])
    try:
        assert child.stdout is not None
        child.stdout.readline()
        ready = time.time()
        assert 0.4 <= cpu_s([child.pid]) < 5
        while cpu_s([child.pid]) < 0.8:
            time.sleep(0.05)
    finally:
        meter.close()
        child.communicate(b"\n")
    assert meter.at(0.0) < meter.at(ready + 0.2) <= meter.at(time.time())
    assert cpu_s([os.getpid() + 10_000_000]) == 0
