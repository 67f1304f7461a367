"""Connections to one Redis or a Redis Cluster, scripts run there in pipelines, and failures in this project's words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import redis
from redis.exceptions import (
    AskError,
    MovedError,
    NoScriptError,
    RedisClusterException,
    RedisError,
)

from schemas.errors import StoreError

TIMEOUT_S = 5.0
CLUSTER_TIMEOUT_S = 1.0
"""Shorter: a node that does not even refuse makes the other nodes' users wait so long, batch by batch."""
CLUSTER_SCHEME = "redis+cluster://"
ERRORS = (RedisError, RedisClusterException)
"""What redis-py raises: the two share no base class."""


class Call(NamedTuple):
    """One run of a script. Its keys share a hash tag, hence a node of a cluster."""

    keys: tuple[str, ...]
    args: tuple[bytes | int, ...]


class Script:
    """A Lua script, sent by its digest; a server that does not know it is given the source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: Any, calls: Sequence[Call]) -> list[Any]:
        """The answer to each call; for one that failed the error, in its place. Other calls are not touched by it.

        redis-py's own cluster pipeline refuses EVALSHA. So each node gets a pipeline of its own here, and a slot that
        moves meanwhile is followed call by call.
        """
        answers: list[Any] = [None] * len(calls)
        moved: list[int] = []
        for node, places in _by_node(client, calls, answers):
            found = self._pipeline(node, [calls[place] for place in places])
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
                if isinstance(answer, (MovedError, AskError)):
                    moved.append(place)
        for place in moved:
            answers[place] = self._follow(client, calls[place])
        return answers

    def _pipeline(self, node: Any, calls: Sequence[Call]) -> list[Any]:
        try:
            answers = self._send(node, calls)
            unknown = [place for place, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if unknown:  # a server that has just started
                node.script_load(self.source)
                for place, answer in zip(unknown, self._send(node, [calls[place] for place in unknown]), strict=True):
                    answers[place] = answer
        except ERRORS as error:
            return [error] * len(calls)
        return answers

    def _send(self, node: Any, calls: Sequence[Call]) -> list[Any]:
        pipe = node.pipeline(transaction=False)
        for call in calls:
            pipe.evalsha(self.digest, len(call.keys), *call.keys, *call.args)
        return pipe.execute(raise_on_error=False)

    def _follow(self, client: Any, call: Call) -> Any:
        try:
            return client.eval(self.source, len(call.keys), *call.keys, *call.args)
        except ERRORS as error:
            return error


def _by_node(client: Any, calls: Sequence[Call], answers: list[Any]) -> list[tuple[Any, list[int]]]:
    """Which calls go to which node; a call whose slot no node holds gets its error here."""
    if not is_cluster(client):
        return [(client, list(range(len(calls))))]
    groups: dict[str, tuple[Any, list[int]]] = {}
    for place, call in enumerate(calls):
        try:
            node = client.get_node_from_key(call.keys[0])
            groups.setdefault(node.name, (client.get_redis_connection(node), []))[1].append(place)
        except ERRORS as error:
            answers[place] = error
    return list(groups.values())


def publish(client: Any, channel: str, message: bytes) -> None:
    """Tell the channel. A cluster passes it on to every node's subscribers, so any node that answers will do."""
    if not is_cluster(client):
        client.publish(channel, message)
        return
    last: Exception | None = None
    for node in client.get_primaries():
        try:
            client.get_redis_connection(node).publish(channel, message)
        except ERRORS as error:
            last = error
        else:
            return
    raise last or RedisClusterException("the cluster has no nodes")


def is_cluster(client: Any) -> bool:
    """Whether it is a cluster's client."""
    return isinstance(client, redis.RedisCluster)


def refresh(client: Any) -> None:
    """Ask a cluster anew which node holds what: after a failure another may have taken over."""
    if is_cluster(client):
        try:
            client.nodes_manager.initialize()
        except ERRORS:  # too many nodes are down: the map in use stays
            return


def connect(url: str) -> Any:
    """A client that returns bytes: ``redis://HOST:PORT/0``, or ``redis+cluster://HOST:PORT`` for a cluster.

    One server is connected to at the first use. A cluster is asked for its nodes at once: raises ``StoreError``.
    """
    make: Any = redis.Redis
    limit_s = CLUSTER_TIMEOUT_S if url.startswith(CLUSTER_SCHEME) else TIMEOUT_S
    timeouts = {"socket_timeout": limit_s, "socket_connect_timeout": limit_s}
    if not url.startswith(CLUSTER_SCHEME):
        return make.from_url(url, **timeouts)
    cluster: Any = redis.RedisCluster
    try:
        # A node that is down costs its own keys only.
        return cluster.from_url(url.replace(CLUSTER_SCHEME, "redis://", 1), require_full_coverage=False, **timeouts)
    except ERRORS as error:
        raise failure(error) from None


def failure(error: Exception) -> StoreError:
    """The error to raise for ``error``."""
    return StoreError(f"Redis failed: {error}", where="BEFOREHAND_REDIS", mend="See `./beforehand status`.")
