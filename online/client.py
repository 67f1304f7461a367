"""The typed client. A call ends by its time limit with an answer or a typed error; it never hangs.

>>> with RecallClient("http://127.0.0.1:8700") as client:          # doctest: +SKIP
...     client.recall("u1", k=20, budget_ms=30).items[0].item_id
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from online.affinity import HEADER, Instances, token
from schemas.api import Explanation, PromptEmbedding, RecallRequest, RecallResponse
from schemas.errors import BeforehandError

T = TypeVar("T")
DEFAULT_BUDGET_MS = 1000.0
NETWORK_S = 0.25
"""Given to the network and to a busy client beside the request's own budget."""
CONNECT_S = 0.1
LEAST_MS = 1.0
"""Asked for where nothing is left: the answer is then a list that is at hand."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RecallResponse).decode
_MSGPACK = {"content-type": "application/msgpack"}


class RecallError(BeforehandError):
    """No answer from the look-up service."""


class RecallTimeoutError(RecallError):
    """It did not come within the client's own time limit."""


class RecallUnavailableError(RecallError):
    """The service can't be reached, or what answered is not the service."""


class RecallRefusedError(RecallError):
    """The service refused the request; ``status`` is its HTTP status."""

    def __init__(self, status: int, problem: str, where: str, mend: str) -> None:
        super().__init__(problem, where=where, mend=mend)
        self.status = status


class AsyncRecallClient:
    """For asyncio. Use it with ``async with``; it keeps its connections open.

    Args:
        base_url: of the service, as ``serve`` prints it; or of several instances: each user is then asked for at one
            of them, and at the user's next one when it can't be reached.
        timeout_s: the limit of one call; by default the request's budget plus ``NETWORK_S``.
        api_key: what the service finds in its ``$BEFOREHAND_API_KEY``.
        tls: whom to trust and what certificate to show; by default the system's authorities and none
            (``online.tls.client_context`` makes one).
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        if not urls:
            raise RecallUnavailableError("no address is given", where="base_url", mend="Name one instance at least.")
        self._url = ", ".join(urls)
        self._instances = Instances(urls)
        self._timeout_s = timeout_s
        # No limit of httpx's: they are per read and let a slow drip through. ``_call`` bounds the whole. Where there is
        # another instance, one that takes no connection leaves it time.
        limits = httpx.Timeout(None, connect=CONNECT_S if len(urls) > 1 else None)
        trusted: ssl.SSLContext | bool = tls or True
        self._http = httpx.AsyncClient(
            headers=headers, timeout=limits, transport=transport, trust_env=False, verify=trusted
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def recall(
        self,
        user_id: str,
        *,
        k: int = 50,
        budget_ms: float | None = None,
        prompt: PromptEmbedding | None = None,
        exclude: Sequence[str] = (),
        allow: Sequence[str] = (),
        context: dict[str, str] | None = None,
        value: float = 1.0,
    ) -> RecallResponse:
        """Ask for items. Fields as in ``RecallRequest``.

        Raises:
            RecallTimeoutError, RecallUnavailableError, RecallRefusedError.
        """
        request = RecallRequest(
            user_id=user_id,
            k=k,
            budget_ms=budget_ms,
            prompt=prompt,
            exclude=list(exclude),
            allow=list(allow),
            context=context or {},
            value=value,
        )
        limit_s = self._timeout_s or (budget_ms or DEFAULT_BUDGET_MS) / 1000 + NETWORK_S

        def content(spent_ms: float) -> bytes:
            if budget_ms is None or not spent_ms:
                return _encode(request)  # without a budget the service's own counts, which nobody here knows
            return _encode(msgspec.structs.replace(request, budget_ms=max(budget_ms - spent_ms, LEAST_MS)))

        body = await self._call(user_id, "POST", "/v1/recall", limit_s, content, headers=dict(_MSGPACK))
        return self._typed(lambda: _decode(body))

    async def explain(self, user_id: str, *, k: int = 10) -> Explanation:
        """What each rung would answer. Raises as ``recall`` does."""
        path = f"/v1/users/{quote(user_id, safe='')}/explain"
        body = await self._call(user_id, "GET", path, self._timeout_s or 5.0, params={"k": k})
        return self._typed(lambda: msgspec.json.decode(body, type=Explanation))

    async def _call(
        self,
        user_id: str,
        method: str,
        path: str,
        limit_s: float,
        content: Callable[[float], bytes] | None = None,
        **arguments: Any,
    ) -> bytes:
        headers = {**arguments.pop("headers", {}), HEADER: token(user_id)}
        try:
            async with asyncio.timeout(limit_s):
                response = await self._ask(user_id, method, path, content, headers=headers, **arguments)
        except TimeoutError:
            raise RecallTimeoutError(
                f"no answer in {limit_s:.3g} s", where=self._url, mend="Use what the page shows without it."
            ) from None
        except (httpx.HTTPError, OSError) as error:
            raise RecallUnavailableError(
                f"can't be reached: {error}", where=self._url, mend="Is `./beforehand serve` running?"
            ) from None
        if response.status_code >= 400:
            raise self._refusal(response)
        return response.content

    async def _ask(
        self, user_id: str, method: str, path: str, content: Callable[[float], bytes] | None, **arguments: Any
    ) -> httpx.Response:
        """At the user's instance, or at the next where there is one: asking changes nothing, so it may be repeated.

        ``content`` is asked for the body with the milliseconds that are spent: the next instance gets what is left.
        """
        begun, spent_ms = time.monotonic(), 0.0
        *others, last = self._instances.of(user_id)
        for address in others:
            try:
                body = content and content(spent_ms)
                return await self._http.request(method, address + path, content=body, **arguments)
            except (httpx.TransportError, OSError):
                self._instances.failed(address)
                spent_ms = (time.monotonic() - begun) * 1000
        return await self._http.request(method, last + path, content=content and content(spent_ms), **arguments)

    def _refusal(self, response: httpx.Response) -> RecallError:
        msgpack = "msgpack" in response.headers.get("content-type", "")
        try:
            body = (msgspec.msgpack if msgpack else msgspec.json).decode(response.content, type=dict[str, str])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return RecallUnavailableError(f"status {response.status_code}", where=self._url)
        return RecallRefusedError(
            response.status_code, body.get("error", ""), body.get("where", ""), body.get("mend", "")
        )

    def _typed(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RecallUnavailableError(f"not an answer of the service: {error}", where=self._url) from None


class RecallClient:
    """For threads: the same calls, driven by an event loop of its own so that the limits hold to the millisecond.

    It may be made before a fork: each process starts its own loop at its first call.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._make = lambda: AsyncRecallClient(base_url, timeout_s=timeout_s, api_key=api_key, tls=tls)
        self._lock = threading.Lock()
        self._open: _Running | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def recall(self, user_id: str, **fields: Any) -> RecallResponse:
        """As ``AsyncRecallClient.recall``."""
        return self._run(lambda client: client.recall(user_id, **fields))

    def explain(self, user_id: str, *, k: int = 10) -> Explanation:
        """As ``AsyncRecallClient.explain``."""
        return self._run(lambda client: client.explain(user_id, k=k))

    def close(self) -> None:
        """Close the connections and end the loop. Another call starts anew."""
        with self._lock:
            running, self._open = self._open, None
        if running is not None and running.pid == os.getpid():
            asyncio.run_coroutine_threadsafe(running.client.__aexit__(), running.loop).result()
            running.loop.call_soon_threadsafe(running.loop.stop)

    def _run(self, call: Callable[[AsyncRecallClient], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            if self._open is None or self._open.pid != os.getpid():
                self._open = _Running(os.getpid(), asyncio.new_event_loop(), self._make())
                # A daemon: a client that is never closed must not keep the process.
                threading.Thread(target=self._open.loop.run_forever, name="recall", daemon=True).start()
            running = self._open
        return asyncio.run_coroutine_threadsafe(call(running.client), running.loop).result()


@dataclass(frozen=True, slots=True)
class _Running:
    """One process's loop; the thread that drives it does not survive a fork."""

    pid: int
    loop: asyncio.AbstractEventLoop
    client: AsyncRecallClient
