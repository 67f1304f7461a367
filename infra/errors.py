"""The launcher's one error: what went wrong, and what mends it."""

from __future__ import annotations


class LauncherError(Exception):
    """Shown as two lines, without a traceback: the caller can act on `mend` as it stands."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}\n  mend: {mend}")
        self.what = what
        self.mend = mend
