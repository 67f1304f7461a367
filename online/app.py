"""The ASGI application: routes, limits, the API key. No framework: next to a decode it would only cost."""

from __future__ import annotations

import asyncio
import hmac
import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import parse_qs, unquote_to_bytes

import msgspec

from online.console_route import PATH as CONSOLE
from online.console_route import Console
from online.deadline import Deadline, Trail
from online.edge_routes import EdgeRoutes
from online.http import (
    JSON,
    Answer,
    Codec,
    GoneError,
    Receive,
    RefusedError,
    Scope,
    Send,
    WrongMethodError,
    answer,
    answer_codec,
    body_codec,
    header,
    read_body,
    reply,
)
from online.items import ItemRoute
from online.metrics import CONTENT_TYPE
from online.openapi import ErrorBody, document
from online.service import Recall
from online.tracing import Traces
from schemas.api import RecallRequest, RecallResponse
from schemas.errors import DataError
from schemas.keys import check_user_id

MAX_BATCH = 256
EXPLAIN_BUDGET_S = 1.0
EXPLAIN_K = 10
USERS, EXPLAIN = b"/v1/users/", b"/explain"
log = logging.getLogger(__name__)

_one = Codec(RecallRequest)
_many = Codec(Annotated[list[RecallRequest], msgspec.Meta(max_length=MAX_BATCH)])
Handler = Callable[[Scope, Receive, Deadline], Awaitable[Answer]]


class App:
    """``await app(scope, receive, send)``. ``open`` and ``close`` run when the server starts and stops."""

    def __init__(
        self,
        recall: Recall,
        budget_s: float,
        *,
        api_key: str | None = None,
        files: EdgeRoutes | None = None,
        events: Handler | None = None,
        traces: Traces | None = None,
        open_: Callable[[], Awaitable[None]] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._recall = recall
        self._budget_s = budget_s
        self._authorization = f"Bearer {api_key}".encode() if api_key else None
        self._open, self._close = open_, close
        self._files = files
        self._traces = traces
        self._console = Console()
        self._openapi = msgspec.json.encode(document())
        self._routes: dict[tuple[str, bytes], Handler] = {
            ("POST", b"/v1/recall"): self._one,
            ("POST", b"/v1/recall:batch"): self._batch,
            ("GET", b"/v1/items"): ItemRoute(recall.releases),
            ("GET", b"/v1/releases"): self._releases,
            ("GET", b"/healthz"): self._health,
            ("GET", b"/readyz"): self._ready,
            ("GET", b"/metrics"): self._metrics,
            ("GET", b"/openapi.json"): self._contract,
        }
        if events is not None:
            self._routes["POST", b"/v1/events"] = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        deadline = Deadline(self._budget_s, waited_s=self._recall.door.enter())
        if self._traces is not None:
            deadline.trail = Trail()
        try:
            given = await self._route(scope)(scope, receive, deadline)
        except GoneError:
            return
        except RefusedError as error:
            self._recall.metrics.refused(error.status)
            body = ErrorBody(error.problem, error.where, error.mend)
            given = answer(body, answer_codec(scope), error.status, error.headers)
        except Exception as error:  # noqa: BLE001 - the edge: one request's fault must not end the process
            # The message and the path may name a user; the type and the place may not.
            place = "".join(traceback.format_tb(error.__traceback__))
            log.error("a request failed: %s\n%s", type(error).__name__, place)
            self._recall.metrics.refused(500)
            given = answer(ErrorBody("the service failed", "", "See its log."), answer_codec(scope), 500)
        await reply(send, given)

    def _route(self, scope: Scope) -> Handler:
        method, path = scope["method"], scope["raw_path"].split(b"?")[0]
        if method == "HEAD":
            method = "GET"  # the server leaves the body out
        if self._files is not None and (handler := self._files.find(method, path)):
            return handler
        if path.startswith(b"/v1/"):
            self._check_key(scope)
        if method == "GET" and (path == CONSOLE[:-1] or path.startswith(CONSOLE)):
            return self._console
        if handler := self._routes.get((method, path)):
            return handler
        if path.startswith(USERS) and path.endswith(EXPLAIN) and len(path) > len(USERS + EXPLAIN):
            if method == "GET":
                return self._explain
            raise WrongMethodError(method, "GET")
        if allowed := [verb for verb, known in self._routes if known == path]:
            raise WrongMethodError(method, *allowed)
        raise RefusedError(404, "no such path", where=path.decode("latin-1"), mend="See /openapi.json.")

    def _check_key(self, scope: Scope) -> None:
        given = header(scope, b"authorization")
        if self._authorization is not None and not hmac.compare_digest(given, self._authorization):
            raise RefusedError(
                401, "the API key is missing or wrong", where="authorization", mend="Send Bearer and the key."
            )

    async def _one(self, scope: Scope, receive: Receive, deadline: Deadline) -> Answer:
        codec = body_codec(scope)
        request: RecallRequest = _one.decode(await read_body(scope, receive), codec)
        response = await self._answer(request, deadline)
        given = answer(response, answer_codec(scope))
        if self._traces is not None:
            deadline.note("encode")
            self._traces.answered(scope, [(deadline, response)])
        return given

    async def _batch(self, scope: Scope, receive: Receive, deadline: Deadline) -> Answer:
        codec = body_codec(scope)
        requests: list[RecallRequest] = _many.decode(await read_body(scope, receive), codec)
        for number, request in enumerate(requests):
            _check(request, f"[{number}].user_id")
        deadlines = [deadline.fork() for _ in requests]
        pairs = zip(requests, deadlines, strict=True)
        answers = await asyncio.gather(*(self._answer(*pair, bulk=True) for pair in pairs))
        if self._traces is not None:
            self._traces.answered(scope, list(zip(deadlines, answers, strict=True)))
        return answer(answers, answer_codec(scope))

    async def _answer(self, request: RecallRequest, deadline: Deadline, *, bulk: bool = False) -> RecallResponse:
        _check(request, "user_id")
        if request.budget_ms is not None:
            deadline.grant(request.budget_ms / 1000)
        deadline.mark("parse")
        return await self._recall.answer(request, deadline, bulk=bulk)

    async def _explain(self, scope: Scope, _receive: Receive, deadline: Deadline) -> Answer:
        path: bytes = scope["raw_path"].split(b"?")[0]
        try:
            user_id = unquote_to_bytes(path[len(USERS) : -len(EXPLAIN)]).decode()
        except UnicodeDecodeError:
            raise RefusedError(422, "a user id is UTF-8", where="user_id", mend="Percent-encode it.") from None
        k = parse_qs(scope["query_string"].decode("latin-1")).get("k", [str(EXPLAIN_K)])[0]
        try:
            request = msgspec.convert({"user_id": user_id, "k": k}, RecallRequest, strict=False)
        except msgspec.ValidationError as error:
            raise RefusedError(422, str(error), where="user_id or k", mend="See /openapi.json.") from None
        _check(request, "user_id")
        deadline.grant(EXPLAIN_BUDGET_S)
        return answer(await self._recall.explain(request, deadline), answer_codec(scope))

    async def _releases(self, scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
        return answer(self._recall.releases.report(), answer_codec(scope))

    async def _health(self, _scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
        return answer({"alive": True}, JSON)

    async def _ready(self, _scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
        report = self._recall.releases.report()
        ready = report.current is not None
        return answer({"ready": ready, "problems": report.problems}, JSON, 200 if ready else 503)

    async def _metrics(self, _scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
        self._recall.metrics.serving(self._recall.releases.loaded.roles)
        return Answer(self._recall.metrics.text(), CONTENT_TYPE)

    async def _contract(self, _scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
        return Answer(self._openapi)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        acts = {"startup": self._open, "shutdown": self._close}
        for phase, act in acts.items():
            message = await receive()
            assert message["type"] == f"lifespan.{phase}"
            if act is not None:
                await act()
            await send({"type": f"lifespan.{phase}.complete"})


def _check(request: RecallRequest, where: str) -> None:
    try:
        check_user_id(request.user_id)
    except DataError as error:
        raise RefusedError(422, error.problem, where=where, mend=error.mend) from None
