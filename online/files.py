"""A folder's files over HTTP: kept in memory, with strong ETags, as gzip where a ``.gz`` lies beside."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict
from pathlib import Path

import msgspec

from online.http import Answer, Scope, header

MAX_FILE_BYTES = 64 * 1024**2
CACHE_BYTES = 64 * 1024**2
KINDS = {
    ".bin": b"application/octet-stream",
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".mjs": b"text/javascript; charset=utf-8",
    ".onnx": b"application/octet-stream",
    ".ort": b"application/octet-stream",
    ".svg": b"image/svg+xml",
    ".wasm": b"application/wasm",
}
Stamp = tuple[int, int, int]


class File(msgspec.Struct, frozen=True):
    """A file as it was when its stamp was taken."""

    stamp: Stamp  # inode, time of change in ns, size in bytes: another one is another file
    body: bytes
    etag: bytes  # the sha256 of the body, quoted


class Files:
    """Answers for files of one folder. Who calls it has checked the name: only its kind and place are checked here."""

    def __init__(self, folder: Path, cache_bytes: int = CACHE_BYTES) -> None:
        self._folder = folder
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[str, File] = OrderedDict()
        self._held_bytes = 0
        self._loading = asyncio.Lock()

    async def answer(self, name: str, scope: Scope, headers: tuple[tuple[bytes, bytes], ...]) -> Answer | None:
        """200 with the file, 304 when the client has it, None when there is no such file (or it is too large).

        ``headers`` are added to either.
        """
        has_gzip = (self._folder / f"{name}.gz").is_file()
        packed = has_gzip and accepts_gzip(header(scope, b"accept-encoding"))
        file = await self._find(f"{name}.gz" if packed else name)
        if file is None:
            return None
        headers = (*headers, (b"etag", file.etag))
        headers += ((b"vary", b"accept-encoding"),) if has_gzip else ()
        if matches(header(scope, b"if-none-match"), file.etag):
            return Answer(b"", status=304, headers=headers)
        headers += ((b"content-encoding", b"gzip"),) if packed else ()
        return Answer(file.body, KINDS.get(Path(name).suffix, b"application/octet-stream"), headers=headers)

    async def _find(self, name: str) -> File | None:
        """From memory while the file on disk is the same; else read by a thread, one file at a time."""
        try:
            stamp = _stamp((self._folder / name).stat())
        except (OSError, ValueError):
            return None
        known = self._cache.get(name)
        if known is not None and known.stamp == stamp:
            self._cache.move_to_end(name)
            return known
        async with self._loading:
            known = self._cache.get(name)
            if known is None or known.stamp != stamp:
                known = await asyncio.to_thread(read_file, self._folder, name)
                self._keep(name, known)
        return known

    def _keep(self, name: str, file: File | None) -> None:
        if old := self._cache.pop(name, None):
            self._held_bytes -= len(old.body)
        if file is None or len(file.body) > self._cache_bytes:
            return
        self._cache[name] = file
        self._held_bytes += len(file.body)
        while self._held_bytes > self._cache_bytes:
            self._held_bytes -= len(self._cache.popitem(last=False)[1].body)


def read_file(folder: Path, name: str) -> File | None:
    """The file, whole; None when it is none, leads out of the folder or is larger than ``MAX_FILE_BYTES``."""
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            return None
        with path.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if status.st_size > MAX_FILE_BYTES:
                return None
            body = opened.read(MAX_FILE_BYTES)
    except OSError:
        return None
    return File(_stamp(status), body, b'"%s"' % hashlib.sha256(body).hexdigest().encode())


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size


def matches(if_none_match: bytes, etag: bytes) -> bool:
    """Whether the client has it: weak comparison, as RFC 9110 (13.1.2) asks."""
    given = [tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")]
    return etag in given or given == [b"*"]


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether gzip is named, or ``*`` is and gzip is not, with a weight above 0."""
    weights: dict[bytes, float] = {}
    for part in accept_encoding.lower().split(b","):
        name, _, weight = part.partition(b";")
        weights[name.strip()] = _weight(weight.strip())
    return weights.get(b"gzip", weights.get(b"*", 0.0)) > 0


def _weight(parameter: bytes) -> float:
    name, equals, value = parameter.partition(b"=")
    if not equals or name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
