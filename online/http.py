"""HTTP as the service needs it: codecs, sizes, errors. Pure but for reading the body."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from schemas.errors import BeforehandError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

JSON, MSGPACK = b"application/json", b"application/msgpack"
MAX_BODY_BYTES = 2 * 1024**2
"""Above a prompt of a megabyte in base64: what a broken device sends is answered, without its prompt."""
BODY_WAIT_S = 5.0
"""For the whole of it."""
NEVER = re.compile(rb"\bq=0(\.0*)?\s*$")
_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()


class RefusedError(BeforehandError):
    """A request that gets an error status, with the body ``{"error", "where", "mend"}``."""

    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, status: int, problem: str, *, where: str = "", mend: str = "") -> None:
        super().__init__(problem, where=where, mend=mend)
        self.status = status


class WrongMethodError(RefusedError):
    """405, with the methods that are allowed."""

    def __init__(self, method: str, *allowed: str) -> None:
        also = [*allowed, *(["HEAD"] if "GET" in allowed else [])]
        super().__init__(405, "another method is needed", where=method, mend=f"Use {' or '.join(also)}.")
        self.headers = ((b"allow", ", ".join(also).encode()),)


class GoneError(Exception):
    """The client left before its request was whole."""


def header(scope: Scope, name: bytes) -> bytes:
    """A header's value, lower-case name, empty when absent."""
    for key, value in scope["headers"]:
        if key == name:
            return value
    return b""


def body_codec(scope: Scope) -> bytes:
    """The codec of the request's body: JSON unless it says msgpack."""
    kind = header(scope, b"content-type").split(b";")[0].strip().lower() or JSON
    if kind not in (JSON, MSGPACK):
        raise RefusedError(
            415,
            "not a media type of this service",
            where="content-type",
            mend="Send application/json or application/msgpack.",
        )
    if header(scope, b"content-encoding").strip().lower() not in (b"", b"identity"):
        raise RefusedError(415, "a compressed body", where="content-encoding", mend="Send it as it is.")
    return kind


def answer_codec(scope: Scope) -> bytes:
    """The codec of the answer: the first of ours that is accepted, else what was sent, else JSON."""
    for one in header(scope, b"accept").lower().split(b","):
        kind, _, quality = one.partition(b";")
        if kind.strip() in (MSGPACK, JSON) and not NEVER.search(quality):
            return kind.strip()
    return MSGPACK if MSGPACK in header(scope, b"content-type").lower() else JSON


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The whole body. Raises RefusedError when it is too large or too slow, GoneError when the client leaves."""
    said = header(scope, b"content-length")
    if said.isdigit() and int(said) > MAX_BODY_BYTES:
        raise _too_large()
    try:
        async with asyncio.timeout(BODY_WAIT_S):
            body = await _whole(receive)
    except TimeoutError:
        raise RefusedError(408, "the body did not come", where="body", mend="Send it at once.") from None
    if len(body) > MAX_BODY_BYTES:
        raise _too_large()
    return body


def _too_large() -> RefusedError:
    return RefusedError(413, "the body is too large", where="body", mend=f"{MAX_BODY_BYTES // 1024} KB at most.")


async def _whole(receive: Receive) -> bytes:
    """The body, or a little more of it than may come."""
    body = bytearray()
    while len(body) <= MAX_BODY_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return bytes(body)


class Codec:
    """Decodes bodies of one type, in both codecs."""

    def __init__(self, kind: Any) -> None:
        self._json = msgspec.json.Decoder(kind)
        self._msgpack = msgspec.msgpack.Decoder(kind)

    def decode(self, body: bytes, codec: bytes) -> Any:
        """The value. Raises RefusedError: 400 when it can't be parsed, 422 when it breaks the contract."""
        try:
            return self._json.decode(body) if codec == JSON else self._msgpack.decode(body)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `$")
            raise RefusedError(422, problem, where=path.strip("`."), mend="See /openapi.json.") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError(
                400, f"not valid {codec.decode()}: {error}", where="body", mend="See /openapi.json."
            ) from None


class Answer(msgspec.Struct, frozen=True):
    """A whole answer, not yet sent."""

    body: bytes
    kind: bytes = JSON
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


def answer(value: object, codec: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    """``value`` in the client's codec."""
    return Answer(_json.encode(value) if codec == JSON else _msgpack.encode(value), codec, status, headers)


async def reply(send: Send, given: Answer) -> None:
    """Send it. A client that has left in the meantime gets nothing, and that is no fault."""
    headers = [*given.headers]
    if given.status != 304:  # there these two would speak of the file that the client has
        headers += [(b"content-type", given.kind), (b"content-length", b"%d" % len(given.body))]
    # uvicorn and uvloop say RuntimeError when the connection is gone.
    with suppress(OSError, RuntimeError):
        await send({"type": "http.response.start", "status": given.status, "headers": headers})
        await send({"type": "http.response.body", "body": given.body})
