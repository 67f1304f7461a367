"""The measurement itself: a made-up release that is one, a generator that hides no waiting, and a whole small run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from online_values import FIXTURES, KEY

from online.bench.floor import products_flops
from online.bench.load import Generator, Job
from online.bench.stand import generate
from online.bench.synthetic import make_release, make_state, trie
from online.release import load
from schemas.api import Ledger, RecallResponse
from schemas.locations import ROOT
from schemas.names import Rung
from schemas.release import load_public_key, read_manifest

MODEL = read_manifest(FIXTURES / "release", KEY).content.model


@settings(max_examples=40, deadline=None)
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

    def __init__(self, wait_s: float, user_id: str | None = None) -> None:
        self.wait_s, self.user_id = wait_s, user_id
        self.one = asyncio.Lock()

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
                    items=[],
                    rung=Rung.GENERATE,
                    release="r",
                    assets={},
                    skipped={},
                    ledger=Ledger(1.0, 50.0, 49.0, {"store": 0.5}, {}),
                )
                content = msgspec.msgpack.encode(answer)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content) + content)
        except asyncio.IncompleteReadError:
            writer.close()


def against(service: SlowService, **settings) -> object:
    async def run():
        server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        job = Job("127.0.0.1", port, users=5, budget_ms=50, slack_ms=10, **settings)
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


def test_a_closed_loop_keeps_each_connection_busy():
    report = against(SlowService(0.001), seconds=0.3, rate=0, connections=2)
    assert report.requests > 10
    assert report.errors == 0


@pytest.mark.slow
def test_a_whole_small_run(tmp_path):
    command = [sys.executable, "-m", "online", "bench", "online", "--items", "200", "--users", "50", "--seconds", "1"]
    command += ["--release", str(FIXTURES / "release"), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads(done.stdout)
    assert result["errors"] == result["wrong_user"] == 0
    assert result["requests"] > 100
    assert result["items"] == 200
    for name in ("requests_per_cpu_s", "live_cpu_ms", "floor_cpu_ms", "lookup_cpu_us", "mget_cpu_us"):
        assert result[name] > 0
    assert result["p50_ms_at_60"] <= result["p99_ms_at_60"] <= result["p999_ms_at_60"]
    for name in ("in_deadline_at_150", "goodput_value_at_150", "goodput_fifo_at_150", "communication_share"):
        assert 0 <= result[name] <= 1


@pytest.mark.slow
def test_a_decoder_with_too_few_codes_is_named():
    command = [sys.executable, "-m", "online", "bench", "--items", "1000", "--release", str(FIXTURES / "release")]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == 4
    assert "--items 256" in json.loads(done.stdout)["mend"]


def test_a_generator_that_fails_is_no_result(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        generate(Job("127.0.0.1", 9, seconds=0.1, rate=10, connections=1, users=1, budget_ms=50, slack_ms=10))
