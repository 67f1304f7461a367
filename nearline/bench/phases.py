"""The measurements, one after the other on one stand; each leaves what the next one builds on."""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack, closing
from itertools import chain
from typing import Any
from zlib import crc32

from kafka import KafkaAdminClient

from nearline.bench.catchup import Group, follow, rate
from nearline.bench.sending import send
from nearline.bench.stand import Meter, Stand, summary
from nearline.bench.traffic import Log
from nearline.broker import GROUP
from nearline.guarded import guarded
from nearline.metrics import percentiles
from nearline.redis_link import connect
from nearline.topics import ensure_topics
from nearline.visibility import watching
from nearline.written import WRITTEN_KEY
from schemas.canary import Split
from schemas.cli import step
from schemas.errors import StoreError
from schemas.plan import load_plan
from schemas.topics import EVENTS_TOPIC, WINDOWS_TOPIC

JOB_GROUP = "beforehand-windows"
PLAIN_GROUP, PLAIN_TOPIC = "datastream-windows", "datastream-events"
WARM_EVENTS = 2_000
MEASURED_ONE_IN = 20  # of the users, for freshness
WINDOW, WARM, PATH, FRESHNESS, PLAIN = 1, 2, 3, 4, 5  # seeds: no two phases send the same events
QUIET_S, LIMIT_S = 3.0, 1800.0


class Bench:
    """``run`` gives every figure of ``bench stream``."""

    def __init__(self, stand: Stand, log: Log, args: argparse.Namespace) -> None:
        self._stand, self._log, self._args = stand, log, args
        overrides = [f"nearline.refresh={args.refresh}"] if args.refresh else []
        self._settings = [word for one in overrides for word in ("--set", one)]
        self._plan = load_plan(overrides=overrides)
        self._label = str(Split(stand.manifest.id))
        self._measured: dict[str, Any] = {
            "users": args.users,
            "refresh_ms": round(self._plan.nearline.refresh * 1000),
            "window": self._plan.model.window,
            "release": stand.manifest.id,
        }

    def run(self) -> dict[str, Any]:
        """All figures by name, and under ``measured`` how they were."""
        found = self._window() | self._path() | self._rebuild()
        self._stand.verb("stream", "stop")
        return found | self._datastream() | {"measured": self._measured}

    def _window(self) -> dict[str, Any]:
        """The job from its start through a backlog: one old event of every user, then the replay."""
        args = self._args
        ensure_topics(self._stand.kafka)
        backlog = chain(self._log.history(args.users), self._replay(args.events, WINDOW))
        with step("backlog") as made:
            sent = send(self._stand.kafka, EVENTS_TOPIC, backlog, args.users + args.events)
            made(f"{sent.events:,} events")
        with closing(Meter(self._stand.flink_pids)) as meter, step("window job") as made:
            job_id = self._stand.verb("stream", "deploy", "--fresh", *self._settings)["job_id"]
            points = self._follow(job_id, EVENTS_TOPIC, JOB_GROUP, WINDOWS_TOPIC, meter)
            found = rate(points, args.users)
            made(f"{found['events_per_cpu_s']:,} events per CPU-second")
        checkpoint = self._stand.ask_flink(f"/jobs/{job_id}/checkpoints")["latest"]["completed"]
        self._measured["window_job"] = found | {"windows_written": self._end(WINDOWS_TOPIC)}
        return {
            "window_events_per_cpu_s": found["events_per_cpu_s"],
            "state_bytes_per_user": round(checkpoint["state_size"] / args.users),
        }

    def _path(self) -> dict[str, Any]:
        """Job and worker: first a burst as fast as the broker takes it, then half of what they managed, open loop."""
        stand, args = self._stand, self._args
        with ExitStack() as stack:
            windows = stack.enter_context(closing(Group(stand.kafka, WINDOWS_TOPIC, GROUP)))
            self._skip(windows)
            worker = stack.enter_context(stand.worker())
            flink, encoding = (stack.enter_context(closing(Meter(one))) for one in (stand.flink_pids, [worker.pid]))
            self._through(windows, self._replay(WARM_EVENTS, WARM), WARM_EVENTS)
            begun, written = time.time(), windows.end()
            with step("path") as made:
                ended = self._through(windows, self._replay(args.path_events, PATH), args.path_events)
                used = [meter.at(ended) - meter.at(begun) for meter in (flink, encoding)]
                reached = args.path_events / sum(used)
                made(f"{reached:,.0f} events per CPU-second")
            self._measured["path"] = {
                "events": args.path_events,
                "windows": windows.end() - written,
                "flink_cpu_s": round(used[0], 2),
                "worker_cpu_s": round(used[1], 2),
                "seconds": round(ended - begun, 1),
                "warm_up_excluded": True,
            }
            fresh = self._freshness(windows, reached / 2, [flink, encoding])
        self._measured["worker"] = summary(worker)
        return {"path_events_per_cpu_s": round(reached), **fresh}

    def _freshness(self, windows: Group, events_per_s: float, meters: list[Meter]) -> dict[str, Any]:
        users = map(self._log.user, range(self._args.users))
        measured = {user for user in users if crc32(user.encode()) % MEASURED_ONE_IN == 0}
        count = round(events_per_s * self._args.seconds)
        begun, before = time.time(), windows.end()
        with step("freshness") as made, watching(self._stand.redis, measured) as watch:
            events = self._replay(count, FRESHNESS)
            sent = send(self._stand.kafka, EVENTS_TOPIC, events, count, rate=events_per_s, watch=watch)
            ended = self._drained(windows)
            watch.look()
            shares = percentiles(watch.freshness_ms)
            made(f"p50 {shares['p50']} ms, p99 {shares['p99']} ms")
            self._measured["freshness"] = {
                "events_per_s": round(count / sent.seconds),
                "seconds": round(sent.seconds, 1),
                "events_measured": len(watch.freshness_ms),
                "never_visible": watch.unseen,
                "sender_late_p99_ms": round(sent.late_ms, 1),
                "windows": windows.end() - before,
                "events_per_cpu_s": round(count / sum(one.at(ended) - one.at(begun) for one in meters)),
            }
        return {"freshness_p50_ms": shares["p50"], "freshness_p99_ms": shares["p99"]}

    def _rebuild(self) -> dict[str, Any]:
        """An empty Redis, filled by one worker from the newest windows of the topic."""
        client: Any = connect(self._stand.redis)
        with closing(client), closing(Group(self._stand.kafka, WINDOWS_TOPIC, GROUP)) as windows:
            client.flushall()
            empty = client.info("memory")["used_memory"]
            self._skip(windows, leave=self._args.states)
            with step("rebuild") as made:
                with self._stand.worker("--once") as worker:
                    filled = summary(worker)
                a_second = filled["states"] / filled["seconds"]
                made(f"{filled['states']:,} states, {a_second:,.0f} a second")
            grown = client.info("memory")["used_memory"] - empty
        self._measured["rebuild"] = {name: filled[name] for name in ("records", "states", "seconds", "cpu_s")}
        return {
            "rebuild_states_per_s": round(a_second),
            "rebuild_states_per_cpu_s": round(filled["states"] / filled["cpu_s"]),
            "redis_bytes_per_user": round(grown / max(1, filled["states"])),
        }

    def _datastream(self) -> dict[str, Any]:
        """The same windows by a keyed process function in Python, over a topic of its own."""
        stand, args = self._stand, self._args
        _make_topics(stand.kafka, PLAIN_TOPIC)
        send(stand.kafka, PLAIN_TOPIC, self._replay(args.datastream_events, PLAIN), args.datastream_events)
        words = ("--topic", PLAIN_TOPIC, "--mode", args.datastream_mode, *self._settings)
        with closing(Meter(stand.flink_pids)) as meter, step("plain DataStream job") as made:
            job_id = stand.verb("stream", "compare", *words)["job_id"]
            points = self._follow(job_id, PLAIN_TOPIC, PLAIN_GROUP, f"{PLAIN_TOPIC}-windows", meter)
            found = rate(points, args.datastream_events // 5)
            made(f"{found['events_per_cpu_s']:,} events per CPU-second")
        stand.ask_flink(f"/jobs/{job_id}?mode=cancel", method="PATCH")
        self._measured["datastream"] = found | {"mode": args.datastream_mode}
        return {"datastream_events_per_cpu_s": found["events_per_cpu_s"]}

    def _replay(self, count: int, seed: int) -> Any:
        return self._log.replay(self._args.users, count, seed)

    def _follow(self, job_id: str, topic: str, group: str, output: str, meter: Meter) -> Any:
        kafka = self._stand.kafka
        with closing(Group(kafka, topic, group)) as read, closing(Group(kafka, output, group)) as written:
            return follow(self._stand, job_id, read, written, meter)

    def _through(self, windows: Group, events: Any, count: int) -> float:
        """Send, and wait until job and worker have done it all; when that was."""
        send(self._stand.kafka, EVENTS_TOPIC, events, count)
        return self._drained(windows)

    def _drained(self, windows: Group) -> float:
        with closing(Group(self._stand.kafka, EVENTS_TOPIC, JOB_GROUP)) as events:
            done, changed, ends = -1, time.time(), time.time() + LIMIT_S
            while True:
                if (now := windows.committed()) != done:
                    done, changed = now, time.time()
                read = events.committed() == events.end() and done == windows.end()
                if read and time.time() - changed > QUIET_S:
                    return changed
                if time.time() > ends:
                    raise StoreError(f"the path did not end within {LIMIT_S:g} s", where=WINDOWS_TOPIC)
                time.sleep(0.1)

    def _skip(self, windows: Group, leave: int = 0) -> None:
        """As if all but the newest windows had been written: to Kafka's offsets, and to Redis' own notes."""
        offsets = windows.skip(self._label, leave)
        client: Any = connect(self._stand.redis)
        with closing(client):
            client.hset(WRITTEN_KEY, mapping={str(number): offset for number, offset in offsets.items()})

    def _end(self, topic: str) -> int:
        with closing(Group(self._stand.kafka, topic, GROUP)) as group:
            return group.end()


def _make_topics(kafka: str, topic: str) -> None:
    """``topic`` as the events are, and the two that the plain job writes."""
    admin: Any = guarded(lambda: KafkaAdminClient(bootstrap_servers=kafka))
    with closing(admin):
        stamped = {"message.timestamp.type": "LogAppendTime"}
        names = {topic: stamped, f"{topic}-windows": {}, f"{topic}-dead-letters": {}}
        wanted = {name: {"num_partitions": 4, "configs": settings} for name, settings in names.items()}
        guarded(lambda: admin.create_topics(wanted, wait_for_metadata=True))
