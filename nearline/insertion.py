"""The offline tier's insertion, kept running: its imports take several times as long as its work."""

from __future__ import annotations

import selectors
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from schemas.errors import BeforehandError, DataError, StoreError
from schemas.item_change import ItemChange, encode_change
from schemas.locations import ROOT

TIMEOUT_S = 900
GRACE_S = 60


class Insertion:
    """``./beforehand insert --listen`` in its own environment; started at the first use, and again when it ended."""

    def __init__(self, data: str, keep: int, overrides: Sequence[str] = ()) -> None:
        """``data``: the data set of the current release, built with these ``overrides`` of the plan. Of superseded
        insertions ``keep`` stay."""
        launcher = str(ROOT / "beforehand")
        self._command = [launcher, "insert", "--listen", "--data", data, "--promote", "--keep", str(keep), "--json"]
        self._command += [f"--set={one}" for one in overrides]
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, changes: Sequence[ItemChange]) -> dict[str, Any]:
        """What the insertion says.

        Raises:
            DataError: it refuses the changes.
            BeforehandError: it could not do it now.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "changes.jsonl"
            path.write_bytes(b"".join(encode_change(change) + b"\n" for change in changes))
            told = self._ask(path)
        if "release" in told:
            return told
        kind = DataError if told.get("code") == DataError.exit_code else BeforehandError
        raise kind(told.get("error", "the insertion failed"), where=told.get("where", ""), mend=told.get("mend", ""))

    def close(self) -> None:
        """Let what runs end."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask(self, path: Path) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            # A session of its own: Ctrl-C stops the follower when the insertion is through, not in its midst.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        try:
            return self._told(self._process, path)
        except (OSError, msgspec.DecodeError) as error:
            self._end(self._process)
            raise StoreError(
                f"the insertion ended: {error}", where=self._command[0], mend="See what it said."
            ) from None

    @staticmethod
    def _told(process: subprocess.Popen[bytes], path: Path) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{path}\n".encode())
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(TIMEOUT_S):
                raise OSError(f"no answer in {TIMEOUT_S} s")
        return msgspec.json.decode(process.stdout.readline(), type=dict[str, Any])

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        with suppress(OSError):
            self.close()
