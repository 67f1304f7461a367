"""The measurement itself: a made-up release that is one, a generator that hides no waiting, and a whole small run."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from online_values import FIXTURES, KEY

from online.bench.faults import FAULTS
from online.bench.floor import products_flops
from online.bench.load import Generator, Job
from online.bench.stage import Users
from online.bench.stand import free_port, generate
from online.bench.stepped import DAY_NS, Clock
from online.bench.synthetic import corrupt, make_failing, make_release, make_state, make_variant, trie
from online.graph import ORT_ERRORS
from online.release import load
from schemas.api import AssetReport, Item, Ledger, RecallResponse
from schemas.errors import ReleaseError
from schemas.locations import ROOT
from schemas.names import Reason, Rung, State
from schemas.release import load_public_key, read_manifest

MODEL = read_manifest(FIXTURES / "release", KEY).content.model


@settings(max_examples=40)
@given(num_items=st.integers(1, 60), codes=st.integers(4, 8), levels=st.integers(2, 4), seed=st.integers(0, 9))
def test_the_trie_is_the_naive_one(num_items, codes, levels, seed):
    model = msgspec.structs.replace(MODEL, num_items=min(num_items, codes**levels // 2), codes=codes, levels=levels)
    arrays = trie(model, np.random.default_rng(seed))
    items = [tuple(row) for row in arrays["item_codes"].tolist()]
    assert items == sorted(set(items))
    nodes = [sorted({item[:depth] for item in items}) for depth in range(levels + 1)]
    for level in range(levels):
        offset, child = arrays[f"offset_{level}"], arrays[f"child_{level}"]
        for number, prefix in enumerate(nodes[level]):
            children = child[offset[number] : offset[number + 1]].tolist()
            assert children == [node[-1] for node in nodes[level + 1] if node[:-1] == prefix]
        assert len(arrays[f"fan_{level}"]) == np.diff(offset).max()
        assert [nodes[level][n] for n in arrays["item_path"][:, level]] == [item[:level] for item in items]


def test_the_fixtures_own_trie_comes_out_the_same(release):
    """From the codes alone: the same rule as the offline tier's."""

    class Given:
        def choice(self, *_args, **_keywords):
            codes = release.arrays["item_codes"]
            return np.ravel_multi_index(tuple(codes.T), (MODEL.codes,) * MODEL.levels)

    for name, array in trie(MODEL, Given()).items():
        assert array.tolist() == release.arrays[name].tolist(), name


def test_a_made_up_release_loads_and_answers(tmp_path):
    manifest = make_release(FIXTURES / "release", tmp_path / "made", 200, tmp_path / "key.pem")
    made = load(tmp_path / "made", load_public_key(tmp_path / "key.pub"))
    assert made.model.num_items == len(made.item_numbers) == 200
    state = make_state(manifest, "u", np.random.default_rng(0))
    assert state.release == made.id
    feed = made.decoder_feed(
        np.ones((1, 1, 16), np.float32),
        np.ones((1, 1, 16), np.float32),
        (np.full((1, 8), -1), np.zeros((1, 8), np.float32)),
        (np.full((1, 1), -1), np.full((1, 1), -1)),
    )
    items = made.decoder.run(feed)[0][0]
    assert len({n for n in items.tolist() if n >= 0}) == made.model.k_max
    assert products_flops(made, feed) > 2 * 16 * 8


class SlowService:
    """Answers one request at a time, each after ``wait_s``."""

    def __init__(
        self, wait_s: float, user_id: str | None = None, status: bytes = b"200 OK", items: tuple[str, ...] = ()
    ) -> None:
        self.wait_s, self.user_id, self.status = wait_s, user_id, status
        self.items = [Item(item_id, [0], 1.0) for item_id in items]
        self.one = asyncio.Lock()
        self.closes = False

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
                user_id = self.user_id or msgspec.msgpack.decode(body)["user_id"]
                async with self.one:
                    await asyncio.sleep(self.wait_s)
                answer = RecallResponse(
                    user_id=user_id,
                    items=self.items,
                    rung=Rung.GENERATE,
                    release="r",
                    assets={"intent_state": AssetReport(State.FRESH, Reason.OK)},
                    skipped={},
                    ledger=Ledger(1.0, 50.0, 49.0, {"store": 0.5}, {}),
                )
                content = msgspec.msgpack.encode(answer)
                if self.closes:
                    writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (self.status, len(content)) + content)
                    writer.close()
                    return
                writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (self.status, len(content)) + content)
        except asyncio.IncompleteReadError:
            writer.close()


def against(service: SlowService, **settings) -> object:
    async def run():
        server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        ports = [*settings.pop("dead", []), port]
        job = Job("127.0.0.1", ports, users=5, budget_ms=50, slack_ms=10, **settings)
        report = await Generator(job).run()
        server.close()
        return report

    return asyncio.run(run())


def test_a_slow_service_does_not_slow_the_load_and_the_wait_is_counted():
    """40 due in half a second, served one by one in 50 ms each: the last have waited for those before them."""
    report = against(SlowService(0.05), seconds=0.5, rate=80, connections=2)
    assert report.requests > 20
    assert max(report.latency_ms) > 0.5 * 50 * report.requests, "waiting for a connection was not counted"
    assert report.late > 0.5 * report.requests
    assert report.good_value < report.value


def test_an_answer_for_another_user_is_seen():
    report = against(SlowService(0.0, user_id="somebody else"), seconds=0.2, rate=50, connections=2)
    assert report.wrong_user == report.requests > 0
    assert report.generated == report.requests


def test_items_of_another_users_state_are_seen(tmp_path):
    """The name alone proves nothing: what is generated must be what the user's own state makes."""
    expected = tmp_path / "expected"
    own = {f"bench-{n}": [f"own-{i}" for i in range(5)] for n in range(4)}  # of the fifth nothing is known
    expected.write_bytes(msgspec.msgpack.encode(own))
    load = {"seconds": 0.3, "rate": 100, "connections": 2, "expected": str(expected)}
    report = against(SlowService(0.0, items=("own-3", "own-1", "own-0")), **load)
    assert report.wrong_user == 0
    assert 0 < report.compared < report.requests
    report = against(SlowService(0.0, items=("own-3", "own-1", "theirs")), **load)
    assert report.wrong_user == report.compared > 0


def test_errors_of_the_service_are_counted_and_are_no_answers():
    report = against(SlowService(0.0, status=b"503 Service Unavailable"), seconds=0.2, rate=50, connections=2)
    assert report.errors == report.errors_5xx == report.requests > 0
    assert report.latency_ms == []


def test_an_instance_that_is_gone_costs_no_answer():
    """As a proxy or our own client does it: the next one is asked, and that it took longer is counted."""
    report = against(SlowService(0.0), seconds=0.2, rate=50, connections=2, dead=[free_port()])
    assert report.errors == 0
    assert report.moved == report.requests > 0


def test_a_connection_that_is_closed_between_two_requests_is_made_anew():
    service = SlowService(0.0)
    service.closes = True
    report = against(service, seconds=0.3, rate=50, connections=2)
    assert report.errors == report.moved == 0
    assert report.generated == report.requests > 0


def test_without_any_instance_every_request_is_an_error():
    report = asyncio.run(Generator(Job("127.0.0.1", [free_port()], 0.1, 50, 1, 5, 50, 10)).run())
    assert report.errors == report.requests > 0


def test_a_closed_loop_keeps_each_connection_busy():
    report = against(SlowService(0.001), seconds=1.5, rate=0, connections=2)
    assert report.requests > 10
    assert report.errors == 0


@pytest.mark.slow
def test_a_whole_small_run(tmp_path):
    command = [sys.executable, "-m", "online", "bench", "online", "--items", "200", "--users", "50", "--seconds", "1"]
    command += ["--release", str(FIXTURES / "release"), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["errors"] == result["wrong_user"] == 0
    assert result["requests"] > 100
    assert result["items"] == 200
    for name in ("requests_per_cpu_s", "live_cpu_ms", "floor_cpu_ms", "lookup_cpu_us", "mget_cpu_us"):
        assert result[name] > 0
    for share in (30, 60, 90, 150):
        assert result[f"p50_ms_at_{share}"] <= result[f"p99_ms_at_{share}"] <= result[f"p999_ms_at_{share}"]
        assert 0 <= result[f"in_deadline_at_{share}"] <= 1
    for name in ("goodput_value_at_150", "goodput_fifo_at_150", "goodput_random_at_150", "communication_share"):
        assert 0 <= result[name] <= 1
    assert result["whole_model_cpu_ms"] > result["decode_cpu_ms"] > 0
    assert result["cost_per_million_codes"] > 0
    assert result["compared"] > 0
    for name in ("hf_generate_cpu_ms", "feast_lookup_cpu_us"):  # its environment is made when asked for
        assert result[name] is None
    assert "--rivals" in result["rivals"]["feast_lookup"]


@pytest.mark.slow
def test_under_every_fault_nobody_gets_an_error_or_another_users_items(tmp_path):
    command = [sys.executable, "-m", "online", "bench", "online", "--faults", "--items", "200", "--users", "50"]
    command += ["--seconds", "1", "--requests", "1500", "-k", "10", "--release", str(FIXTURES / "release"), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["errors"] == result["errors_5xx"] == result["wrong_user"] == 0
    assert result["requests"] >= 1500
    assert result["compared"] > 0
    faults = result["faults"]
    assert set(faults) == {fault.name for fault in FAULTS}
    assert all(of["requests"] > 0 for of in faults.values())
    assert sum(of["requests"] for of in faults.values()) <= result["requests"]


def test_a_corrupt_or_failing_variant_is_what_it_says(tmp_path):
    """One does not load; the other loads, warms, and fails at every real request."""
    manifest = make_release(FIXTURES / "release", tmp_path / "made", 200, tmp_path / "key.pem")
    key = load_public_key(tmp_path / "key.pub")
    make_variant(tmp_path / "made", tmp_path / "broken", tmp_path / "key.pem", {})
    corrupt(tmp_path / "broken")
    with pytest.raises(ReleaseError, match=r"decoder\.onnx"):
        load(tmp_path / "broken", key)
    failing = make_failing(tmp_path / "made", tmp_path / "failing", tmp_path / "key.pem")
    users, good = Users(manifest, 3), load(tmp_path / "made", key)
    for case in users.cases(good, 3, 10):
        good.decoder.run(case.feed())
    bad = load(tmp_path / "failing", key, failing.id)
    for case in users.cases(bad, 3, 10):
        with pytest.raises(ORT_ERRORS):
            bad.decoder.run(case.feed())


def test_the_stepped_clock_steps_only_what_is_asked_for():
    clock = Clock()
    before = time.time_ns()
    clock.step(signal.SIGUSR1, None)
    assert 0 <= clock.time_ns() - before - 2 * DAY_NS < DAY_NS
    clock.step(signal.SIGUSR2, None)
    clock.step(signal.SIGUSR1, None)
    assert 0 <= clock.time() - before / 1e9 < 100


@pytest.mark.slow
def test_a_decoder_with_too_few_codes_is_named():
    command = [sys.executable, "-m", "online", "bench", "--items", "1000", "--release", str(FIXTURES / "release")]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 4
    assert "--items 256" in json.loads(done.stdout)["mend"]


def test_connections_are_spread_over_the_instances_when_that_is_asked():
    """One of the two is not there, so those that begin at it move; without spreading all begin at the first."""
    settings = {"seconds": 0.3, "rate": 100, "connections": 4}
    spread = against(SlowService(0.0), dead=[free_port()], spread=True, **settings)
    assert 0 < spread.moved < spread.requests
    together = against(SlowService(0.0), dead=[free_port()], **settings)
    assert together.moved == together.requests


def test_a_generator_that_fails_is_no_result():
    with pytest.raises(subprocess.CalledProcessError):
        generate(Job("127.0.0.1", [9], 0.1, 10, 1, 1, 50, 10, expected="/nowhere"))
