"""What anybody may fetch without a key: ``/v1/edge/…``, the bundles for devices, and ``/shop/``, the demo's page.

Bundles lie in a folder as ``./beforehand edge bundle`` and ``edge rollout`` write it. They are signed, hold nothing of
a user, and devices have no key: so none is asked for. Who gets which bundle is decided on the device from the shares
and versions in ``current.json``, which is therefore one file for all.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from online.deadline import Deadline
from online.files import Files
from online.http import Answer, Receive, RefusedError, Scope, WrongMethodError, header
from schemas.errors import BeforehandError

EDGE, SHOP = b"/v1/edge/", b"/shop/"
ORIGINS = "BEFOREHAND_EDGE_ORIGINS"
CURRENT = "current.json"
CURRENT_MAX_AGE_S = 60
BUNDLE_FILE = re.compile(r"[0-9a-f]{16}/(manifest\.json|model\.(?:onnx|ort)|defaults\.bin|codes/\d{1,6}\.bin)\Z")
SITE_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}(\.[a-z0-9-]{1,32}){1,3}\Z")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+\Z")
IMMUTABLE = b"public, max-age=31536000, immutable"
NO_SNIFF = (b"x-content-type-options", b"nosniff")
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SITE_HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    NO_SNIFF,
)
Handler = Callable[[Scope, Receive, Deadline], Awaitable[Answer]]


class EdgeRoutes:
    """The files that devices and browsers fetch."""

    def __init__(
        self, bundles: Path, site: Path | None, origins: frozenset[bytes], registry: CollectorRegistry
    ) -> None:
        self._bundles = Files(bundles)
        self._site = Files(site) if site else None
        self._origins = origins
        self._fetched: Any = Counter(
            "beforehand_edge_files",
            "Files for devices, by kind and HTTP status.",
            ["kind", "status"],
            registry=registry,
        )

    def find(self, method: str, path: bytes) -> Handler | None:
        """The handler of a path of these; None for others. Raises RefusedError for a method other than GET."""
        if path.startswith(EDGE):
            handler = partial(self._bundle, path[len(EDGE) :].decode("latin-1"))
        elif self._site is not None and path.startswith(SHOP):
            handler = partial(self._page, self._site, path[len(SHOP) :].decode("latin-1") or "index.html")
        elif self._site is not None and path == SHOP[:-1]:
            return _to_shop
        else:
            return None
        if method != "GET":
            raise WrongMethodError(method, "GET")
        return handler

    async def _bundle(self, name: str, scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
        kind = _kind(name)
        given = await self._bundles.answer(name, scope, self._headers(name, scope)) if kind else None
        if kind:
            self._fetched.labels(kind, str(given.status if given else 404)).inc()
        if given is None:
            mend = "Run `./beforehand edge bundle` and `edge rollout`." if name == CURRENT else "See current.json."
            raise RefusedError(404, "no such file of a bundle", where=name[:100], mend=mend)
        return given

    def _headers(self, name: str, scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
        lasting = b"public, max-age=%d" % CURRENT_MAX_AGE_S if name == CURRENT else IMMUTABLE
        headers = ((b"cache-control", lasting), NO_SNIFF)
        if not self._origins:
            return headers
        origin = header(scope, b"origin")
        allowed = ((b"access-control-allow-origin", origin),) if origin in self._origins else ()
        return (*headers, (b"vary", b"origin"), *allowed)

    async def _page(self, site: Files, name: str, scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
        given = await site.answer(name, scope, SITE_HEADERS) if SITE_FILE.match(name) else None
        if given is None:
            raise RefusedError(404, "no such file of the shop", where=name[:100], mend="The page is /shop/.")
        return given


async def _to_shop(_scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
    return Answer(b"", status=308, headers=((b"location", SHOP),))


def _kind(name: str) -> str | None:
    """``current``, ``manifest``, ``model``, ``defaults`` or ``codes``; None for a name that no bundle has."""
    if name == CURRENT:
        return "current"
    match = BUNDLE_FILE.match(name)
    return re.split(r"[./]", match[1])[0] if match else None


def read_origins(setting: str) -> frozenset[bytes]:
    """The origins that may read bundles from their pages: ``https://shop.example, https://m.shop.example``.

    Raises:
        BeforehandError: naming the entry that is no origin.
    """
    origins = [part.strip() for part in setting.split(",") if part.strip()]
    for origin in origins:
        if not _ORIGIN.match(origin):
            mend = "Write scheme and host, without a path, separated by commas, as in https://shop.example."
            raise BeforehandError("not an origin", where=ORIGINS, value=origin, mend=mend)
    return frozenset(origin.encode() for origin in origins)
