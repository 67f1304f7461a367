"""``/console/``: the operator's page. It holds no data: it reads ``/metrics`` and ``/v1`` with the typed key."""

from __future__ import annotations

from pathlib import Path

from online.deadline import Deadline
from online.files import Files
from online.http import Answer, Receive, RefusedError, Scope

PATH = b"/console/"
NAMES = {"": "index.html", "console.js": "console.js", "metrics.js": "metrics.js", "console.css": "console.css"}
POLICY = b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


class Console:
    """The handler of every path under ``/console``."""

    def __init__(self) -> None:
        self._files = Files(Path(__file__).parent / "console")

    async def __call__(self, scope: Scope, _receive: Receive, _deadline: Deadline) -> Answer:
        """One of its four files; without the final slash a redirection."""
        path: bytes = scope["raw_path"].split(b"?")[0]
        if path == PATH[:-1]:
            return Answer(b"", status=308, headers=((b"location", PATH),))
        name = NAMES.get(path[len(PATH) :].decode("latin-1"))
        given = await self._files.answer(name, scope, HEADERS) if name else None
        if given is None:
            raise RefusedError(404, "no such file of the console", where="path", mend="The page is /console/.")
        return given
