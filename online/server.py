"""``serve``: the service as one process: socket, address file, start, graceful end."""

from __future__ import annotations

import argparse
import asyncio
import gc
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn

from online.app import App
from online.edge_routes import ORIGINS, EdgeRoutes, read_origins
from online.events import EventsRoute
from online.kafka_producer import kafka_outbox
from online.protocol import BoundedProtocol
from online.releases import Releases
from online.service import Recall
from online.store import Store
from online.tls import Tls, read_tls
from online.tracing import open_traces
from schemas.cli import Result, say, step
from schemas.errors import BeforehandError, StoreError
from schemas.locations import address, state_dir
from schemas.plan import Plan, load_plan

API_KEY, KAFKA = "BEFOREHAND_API_KEY", "BEFOREHAND_KAFKA"
KEEP_ALIVE_S = 75
SWITCH_S = 0.0002
COLLECT_AFTER = 10_000
GRACE_S = 5


def serve(args: argparse.Namespace) -> Result:
    """The verb. Returns when the process is told to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    api_key = os.environ.get(API_KEY) or None
    tls = read_tls(args.tls_cert, args.tls_key, args.client_ca)
    check_host(args.host, api_key, tls)
    check_shop(args.shop, api_key)
    origins = read_origins(os.environ.get(ORIGINS, ""))
    plan = load_plan()
    url = args.redis or address("redis")
    listener = listen(args.host, args.port)
    releases = Releases()
    with step("release") as made:
        releases.tick()
        report = releases.report()
        made(report.current or f"none serves: {'; '.join(report.problems.values()) or 'none is promoted yet'}")
    host, port = listener.getsockname()[:2]
    where = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    app = build(plan, url, releases, api_key, _announcement(where, args.ready_file), web=(args.shop, origins))
    say(f"the look-up service answers at {where}")
    # A decode thread needs the interpreter for microseconds, several times a run; by default a busy loop lets it in
    # only every 5 ms.
    sys.setswitchinterval(SWITCH_S)
    # A request leaves no cycles behind, and in a crowd 700 objects, the default, are those of seven answers: each look
    # for garbage would hold up loop and decoder for nothing.
    gc.set_threshold(COLLECT_AFTER)
    # uvicorn ends gracefully and then raises the signal again; being told to end is no failure.
    signal.signal(signal.SIGTERM, _told)
    uvicorn.Server(_config(app, tls)).run(sockets=[listener])
    return {"url": where, "stopped": True}


def _config(app: App, tls: Tls | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        proxy_headers=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        **(tls.options() if tls else {}),
    )


def _told(_signal: int, _frame: object) -> None:
    """Nothing is left to do: uvicorn has ended."""


def build(
    plan: Plan,
    redis_url: str,
    releases: Releases,
    api_key: str | None = None,
    announcement: Announcement | None = None,
    *,
    web: tuple[Path | None, frozenset[bytes]] = (None, frozenset()),
) -> App:
    """Wire the parts. ``releases`` has had its first look at the registry; ``web``: the demo's shop, and the origins
    whose pages may read bundles."""
    online = plan.online
    store = Store(redis_url, timeout_s=float(online.store_timeout), cache_bytes=int(online.cache_bytes))
    recall = Recall(plan, store, releases)
    metrics = recall.metrics
    metrics.queue.set_function(lambda: recall.lanes.in_flight)
    metrics.turn.set_function(lambda: recall.door.turns.s)
    metrics.cache_bytes.set_function(lambda: store.cache.num_bytes)
    metrics.circuit_open.set_function(lambda: store.circuit_open)
    metrics.load_failures.set_function(lambda: releases.num_failures)

    outbox = kafka_outbox(os.environ.get(KAFKA))
    events = EventsRoute(outbox, lambda: releases.loaded.ids, metrics.registry)
    traces = open_traces(os.environ)

    async def start() -> None:
        await store.start()
        releases.start()
        recall.model_metrics.start()
        if outbox is not None:
            outbox.start()
        if announcement is not None:
            announcement.make()

    async def stop() -> None:
        if announcement is not None:
            announcement.withdraw()
        releases.stop()
        recall.model_metrics.stop()
        await store.close()
        recall.lanes.close()
        if outbox is not None:
            await asyncio.to_thread(outbox.close)
        if traces is not None:
            await asyncio.to_thread(traces.close)

    files = EdgeRoutes(state_dir() / "edge", *web, metrics.registry)
    return App(
        recall,
        float(online.budget),
        api_key=api_key,
        files=files,
        events=events,
        traces=traces,
        open_=start,
        close=stop,
    )


class Announcement:
    """Files that tell others where the service is; each holds ``{"url", "pid"}``."""

    def __init__(self, url: str, files: list[Path]) -> None:
        self._record = {"url": url, "pid": os.getpid()}
        self._files = files

    def make(self) -> None:
        """Write them, each whole at once."""
        for file in self._files:
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"{file.name}.{os.getpid()}")
            part.write_text(json.dumps(self._record))
            part.replace(file)

    def withdraw(self) -> None:
        """Delete those that still name this process."""
        for file in self._files:
            if file.exists() and json.loads(file.read_text()) == self._record:
                file.unlink()


def _announcement(url: str, ready_file: Path | None) -> Announcement:
    return Announcement(url, [state_dir() / "run" / "online" / "address.json", *([ready_file] if ready_file else [])])


def check_host(host: str, api_key: str | None, tls: Tls | None = None) -> None:
    """Only the loopback is served without a key or certificates of clients. Raises BeforehandError."""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise BeforehandError(
            "not an address to listen on", where="--host", value=host, mend="As in 127.0.0.1."
        ) from None
    if not loopback and not api_key and (tls is None or tls.client_ca is None):
        raise BeforehandError(
            "others could reach it without a key",
            where="--host",
            value=host,
            mend=f"Set {API_KEY}, name --client-ca, or listen on 127.0.0.1.",
        )


def check_shop(shop: Path | None, api_key: str | None) -> None:
    """The shop's page holds no key, so it can't ask a service that wants one. Raises BeforehandError."""
    if shop is None:
        return
    if api_key:
        raise BeforehandError("the shop's page has no key", where="--shop", mend=f"Unset {API_KEY}, or leave it out.")
    if not (shop / "index.html").is_file():
        raise BeforehandError("no page is there", where="--shop", value=str(shop), mend="Use `demo --shop`.")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket: whoever reads the address can connect, even before the loop runs. Port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StoreError(
            f"can't listen: {error.strerror}", where="--port", value=port, mend="Choose another, or 0 for a free one."
        ) from None
    listener.listen(1024)
    listener.setblocking(False)
    return listener
